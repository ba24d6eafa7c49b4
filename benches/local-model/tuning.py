"""Other tasks, of the same kinds: prompts are tuned on these."""
import json

from task import Task, all_of, read, runs


def note(path):
    return all_of((read(path, "docs/note.md").strip() == "Remember the milk", "docs/note.md says something else"))


def leap(path):
    return all_of((runs(path, "python3 test_dates.py") is not None, "the test fails"),
                  ("is_leap(1900)" in read(path, "test_dates.py"), "the test was changed"))


def clamp(path):
    code = "import num; assert num.clamp(5, 1, 3) == 3; assert num.clamp(0, 1, 3) == 1; assert num.clamp(2, 1, 3) == 2; assert num.double(4) == 8"
    return all_of((runs(path, f'python3 -c "{code}"') is not None, "clamp or double does not work"))


def klass(path):
    both = read(path, "shapes.py") + read(path, "app.py")
    return all_of(("class Rectangle" in both, "no class Rectangle"), ("class Box" not in both and "Box(" not in both, "Box is still there"),
                  (runs(path, "python3 app.py") == "12\n", "app.py does not print 12"))


def section(path):
    text = read(path, "GUIDE.md")
    return all_of(("## License" in text and "MIT" in text, "no License section"), ("# Guide" in text and "Read this first." in text, "the rest was lost"))


def primes(path):
    return all_of((read(path, "primes.txt").split() == ["2", "3", "5", "7", "11"], "primes.txt is wrong"))


def yaml(path):
    value = json.loads(read(path, "package.json"))
    return all_of((value.get("version") == "1.0.1", "the version is not 1.0.1"), (value.get("name") == "site", "the name is lost"))


def function_gone(path):
    text = read(path, "util.py")
    return all_of(("def old_helper" not in text, "old_helper is still there"), ("def keep" in text, "keep is gone"),
                  (runs(path, "python3 -c 'import util; assert util.keep() == 1'") is not None, "keep does not work"))


def greet_sh(path):
    return all_of((runs(path, "sh greet.sh Bob") == "Hi Bob\n", "greet.sh Bob does not print Hi Bob"))


def flag(path):
    return all_of((runs(path, "python3 add.py 2 3") == "5\n", "add.py 2 3 does not print 5"),
                  (runs(path, "python3 add.py --double 2 3") == "10\n", "add.py --double 2 3 does not print 10"))


def words(path):
    return all_of((read(path, "result.txt").strip() == "3", f"result.txt says {read(path, 'result.txt')[:40]!r}"))


def timeout(path):
    text = read(path, "client.js")
    return all_of(("const TIMEOUT_MS = 5000" in text, "no const TIMEOUT_MS = 5000"), (text.count("5000") == 1, "5000 stands more than once"), (text.count("TIMEOUT_MS") == 3, "it is not used twice"))


TASKS = [
    Task("note", "Create docs/note.md containing the line: Remember the milk", {}, note),
    Task("leap", "test_dates.py fails. Repair dates.py so that it passes.", {
        "dates.py": "def is_leap(year):\n    return year % 4 == 0\n",
        "test_dates.py": "from dates import is_leap\n\nassert is_leap(2024)\nassert not is_leap(1900)\nassert is_leap(2000)\nprint('passed')\n",
    }, leap),
    Task("clamp", "Add a function clamp(x, low, high) to num.py. It returns x limited to the range from low to high.", {
        "num.py": "def double(x):\n    return 2 * x\n",
    }, clamp),
    Task("class", "Rename the class Box to Rectangle everywhere (shapes.py and app.py).", {
        "shapes.py": "class Box:\n    def __init__(self, w, h):\n        self.w = w\n        self.h = h\n\n    def area(self):\n        return self.w * self.h\n",
        "app.py": "from shapes import Box\n\nprint(Box(3, 4).area())\n",
    }, klass),
    Task("section", "Add a section `## License` at the end of GUIDE.md. It says that the project is under the MIT license.", {
        "GUIDE.md": "# Guide\n\nRead this first.\n\n## Start\n\nRun `make`.\n",
    }, section),
    Task("primes", "Write a Python script primes.py that prints the first five prime numbers, one per line. Then run it and store the output in primes.txt.", {}, primes),
    Task("version", "Set the version in package.json to 1.0.1.", {
        "package.json": "{\n  \"name\": \"site\",\n  \"version\": \"1.0.0\",\n  \"private\": true\n}\n",
    }, yaml),
    Task("function gone", "Delete the function old_helper from util.py.", {
        "util.py": "def keep():\n    return 1\n\n\ndef old_helper():\n    return 2\n",
    }, function_gone),
    Task("greet.sh", "greet.sh should greet the person given as first argument, so `sh greet.sh Bob` prints `Hi Bob`. It prints only `Hi`. Fix it.", {
        "greet.sh": "#!/bin/sh\necho \"Hi $name\"\n",
    }, greet_sh),
    Task("flag", "Add a flag --double to add.py: when it is given, the sum is printed doubled. `python3 add.py --double 2 3` prints 10, and `python3 add.py 2 3` still prints 5.", {
        "add.py": "import sys\n\na = int(sys.argv[1])\nb = int(sys.argv[2])\nprint(a + b)\n",
    }, flag),
    Task("words", "How many lines of names.txt start with the letter A? Write just the number into result.txt.", {
        "names.txt": "Ada\nBob\nAnna\nCleo\nArthur\nZed\n",
    }, words),
    Task("timeout", "The number 5000 appears twice in client.js. Introduce a constant TIMEOUT_MS for it at the top and use it.", {
        "client.js": "function get(url) {\n  return request(url, { timeout: 5000 });\n}\n\nfunction put(url, body) {\n  return request(url, { method: 'PUT', body, timeout: 5000 });\n}\n",
    }, timeout),
]
