"""A task: a repository, a prompt, and an external check."""
import dataclasses, pathlib, subprocess, typing


@dataclasses.dataclass
class Task:
    name: str
    text: str
    files: typing.Dict[str, str]
    # Returns None on success, else the error.
    check: typing.Callable[[pathlib.Path], typing.Optional[str]]


def runs(path, command, **more):
    """Returns the output of a shell line, or None if it fails."""
    done = subprocess.run(["sh", "-c", command], cwd=path, text=True, timeout=20,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)
    return done.stdout if done.returncode == 0 else None


def read(path, name):
    file = path / name
    return file.read_text() if file.is_file() else ""


def all_of(*pairs):
    """Returns the first error whose condition is false."""
    for holds, complaint in pairs:
        if not holds:
            return complaint
    return None
