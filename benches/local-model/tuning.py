"""Other tasks of the same kinds, on which prompts are tuned."""
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


# A second set, to verify the tuning on the first.

def median(path):
    return all_of((runs(path, "python3 test_stats.py") is not None, "the test fails"),
                  ("median([4, 1, 3, 2]) == 2.5" in read(path, "test_stats.py"), "the test was changed"))


def slug(path):
    return all_of((runs(path, "python3 -m unittest -q test_slug") is not None, "the test fails"),
                  ("hello-big-world" in read(path, "test_slug.py"), "the test was changed"))


def stack(path):
    return all_of((runs(path, "python3 test_stack.py") is not None, "the test fails"),
                  ("pop() == 2" in read(path, "test_stack.py"), "the test was changed"))


def table(path):
    return all_of((read(path, "table.csv").split() == ["0,32", "10,50", "20,68"], f"table.csv says {read(path, 'table.csv')[:40]!r}"),
                  (read(path, "degrees.py") != "", "no degrees.py"))


def reverse(path):
    return all_of((read(path, "out.txt").split() == ["olleh"], f"out.txt says {read(path, 'out.txt')[:40]!r}"),
                  (read(path, "reverse.sh") != "", "no reverse.sh"))


def limits(path):
    value = json.loads(read(path, "limits.json"))
    return all_of((value == {"unit": "seconds", "soft": 30, "hard": 45, "strict": True}, f"limits.json is {value}"))


def people(path):
    value = json.loads(read(path, "people.json"))
    return all_of((value == [{"name": "Ada", "age": 36}, {"name": "Bob", "age": 25}], f"people.json is {value}"))


def backup(path):
    done = runs(path, "echo x > a.txt && sh backup.sh a.txt && cat a.txt.bak")
    return all_of((done is not None and done.endswith("x\n"), "sh backup.sh a.txt makes no a.txt.bak"))


def countdown(path):
    return all_of((runs(path, "sh countdown.sh 3") == "3\n2\n1\n", f"countdown.sh 3 prints {runs(path, 'sh countdown.sh 3')!r}"))


def upper(path):
    return all_of((runs(path, "python3 say.py hello") == "hello\n", "say.py hello does not print hello"),
                  (runs(path, "python3 say.py --upper hello") == "HELLO\n", "say.py --upper hello does not print HELLO"))


def times(path):
    return all_of((runs(path, "python3 hi.py") == "hi\n", "hi.py does not print hi once"),
                  (runs(path, "python3 hi.py --times 3") == "hi\nhi\nhi\n", "hi.py --times 3 does not print hi three times"))


def finished(path):
    return all_of((read(path, "finished.txt").strip() == "3", f"finished.txt says {read(path, 'finished.txt')[:40]!r}"))


def total(path):
    return all_of((read(path, "total.txt").strip() == "42", f"total.txt says {read(path, 'total.txt')[:40]!r}"))


def is_even(path):
    code = "import maths; assert maths.is_even(4); assert not maths.is_even(7); assert maths.half(8) == 4"
    return all_of((runs(path, f'python3 -c "{code}"') is not None, "is_even or half does not work"))


def renamed(path):
    both = read(path, "tax.py") + read(path, "invoice.py")
    return all_of(("def gross_price(" in read(path, "tax.py"), "tax.py has no gross_price"), ("calc" not in both, "calc is still there"),
                  (runs(path, "python3 invoice.py") == "60\n36\n", "invoice.py does not print 60 and 36"))


def install(path):
    text = read(path, "README.md")
    return all_of(("pip install tool" in text and "npm install" not in text, "README.md does not say pip install tool"),
                  ("# Tool" in text and "It does things." in text and "MIT" in text, "the rest was lost"))


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

TASKS_2 = [
    Task("median", "The test in test_stats.py fails. Fix stats.py.", {
        "stats.py": "def mean(values):\n    return sum(values) / len(values)\n\n\ndef median(values):\n    values = sorted(values)\n    return values[len(values) // 2]\n",
        "test_stats.py": "from stats import mean, median\n\nassert mean([1, 2, 3]) == 2\nassert median([3, 1, 2]) == 2\nassert median([4, 1, 3, 2]) == 2.5\nprint('ok')\n",
    }, median),
    Task("slug", "`python3 -m unittest test_slug` fails. Find the bug in slug.py and fix it.", {
        "slug.py": "def slug(text):\n    words = text.split(' ')\n    return '_'.join(words).lower()\n",
        "test_slug.py": "import unittest\n\nfrom slug import slug\n\n\nclass SlugTest(unittest.TestCase):\n    def test_words(self):\n        self.assertEqual(slug('Hello Big World'), 'hello-big-world')\n\n    def test_one(self):\n        self.assertEqual(slug('One'), 'one')\n\n\nif __name__ == '__main__':\n    unittest.main()\n",
    }, slug),
    Task("stack", "test_stack.py does not pass. Correct the mistake in stack.py.", {
        "stack.py": "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n        self.items.append(item)\n\n    def pop(self):\n        return self.items.pop(0)\n\n    def size(self):\n        return len(self.items)\n",
        "test_stack.py": "from stack import Stack\n\ns = Stack()\ns.push(1)\ns.push(2)\nassert s.pop() == 2\nassert s.size() == 1\nprint('ok')\n",
    }, stack),
    Task("table", "Write degrees.py, a program that prints a line `celsius,fahrenheit` in whole degrees for 0, 10 and 20 degrees Celsius. Run it and save what it prints in table.csv.", {}, table),
    Task("reverse", "Make a shell script reverse.sh that prints the word hello backwards. Run it and put its output into out.txt.", {}, reverse),
    Task("limits", "Write a JSON file limits.json. Its unit is seconds, its soft limit is 30, its hard limit is 45, and strict is true; the keys are unit, soft, hard and strict.", {}, limits),
    Task("people", "Convert people.csv to people.json: a list of objects with name and age, the age as a number.", {
        "people.csv": "name,age\nAda,36\nBob,25\n",
    }, people),
    Task("backup", "backup.sh should copy the file given as first argument to the same name with .bak at the end. It does not work. Fix it.", {
        "backup.sh": "#!/bin/sh\ncp $file $file.bak\n",
    }, backup),
    Task("countdown", "countdown.sh should count down from its first argument to 1, one number per line. `sh countdown.sh 3` never ends. Repair it.", {
        "countdown.sh": "#!/bin/sh\nn=$1\nwhile [ $n -gt 0 ]; do\n  echo $n\n  n=$((n + 1))\ndone\n",
    }, countdown),
    Task("upper", "Teach say.py the option --upper, which prints the word in capital letters. Without the option it works as before.", {
        "say.py": "import sys\n\nprint(sys.argv[1])\n",
    }, upper),
    Task("times", "Add an option `--times N` to hi.py that prints hi N times, one per line. Without it hi is printed once.", {
        "hi.py": "def main():\n    print('hi')\n\n\nif __name__ == '__main__':\n    main()\n",
    }, times),
    Task("finished", "In jobs.csv every job has a state. Find out how many jobs have the state done, and save that number as finished.txt.", {
        "jobs.csv": "job,state\nbuild,done\nlint,failed\ntest,done\ndeploy,waiting\ndocs,done\nrelease,waiting\n",
    }, finished),
    Task("total", "Add up the numbers in numbers.txt and write the sum into total.txt.", {
        "numbers.txt": "7\n13\n2\n20\n",
    }, total),
    Task("is_even", "Write a function is_even(n) in maths.py that tells whether n is even.", {
        "maths.py": "def half(n):\n    return n // 2\n",
    }, is_even),
    Task("renamed", "calc is a poor name for the function in tax.py. Give it the name gross_price, also where invoice.py calls it.", {
        "tax.py": "RATE = 20\n\n\ndef calc(net):\n    return net + net * RATE // 100\n",
        "invoice.py": "import tax\n\nprint(tax.calc(50))\nprint(tax.calc(30))\n",
    }, renamed),
    Task("install", "README.md says `npm install`. It must say `pip install tool`. Correct it.", {
        "README.md": "# Tool\n\nIt does things.\n\n## Install\n\nRun `npm install`.\n\n## License\n\nMIT\n",
    }, install),
]
