"""A task: a repository, what is to be done in it, and a check from outside."""
import dataclasses, pathlib, subprocess, typing


@dataclasses.dataclass
class Task:
    name: str
    text: str
    files: typing.Dict[str, str]
    # None when all is well, else what is wrong.
    check: typing.Callable[[pathlib.Path], typing.Optional[str]]


def runs(path, command, **more):
    """The output of a shell line, or None when it fails."""
    done = subprocess.run(["sh", "-c", command], cwd=path, text=True, timeout=20,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)
    return done.stdout if done.returncode == 0 else None


def read(path, name):
    file = path / name
    return file.read_text() if file.is_file() else ""


def all_of(*pairs):
    """The first complaint whose condition does not hold."""
    for holds, complaint in pairs:
        if not holds:
            return complaint
    return None
