"""The twelve benchmark tasks. Prompts are not tuned on them."""
import json

from task import Task, all_of, read, runs


def create(path):
    return all_of((read(path, "greeting.txt").strip() == "Good morning, Vietnam", "greeting.txt says something else"))


def mend_test(path):
    return all_of((runs(path, "python3 test_stats.py") is not None, "the test fails"),
                  ("mean([1, 2, 3, 4]) == 2.5" in read(path, "test_stats.py"), "the test was changed"))


def add_function(path):
    code = "import text; assert text.reverse_words('a bc d') == 'd bc a'; assert text.shout('x') == 'X!'"
    return all_of((runs(path, f'python3 -c "{code}"') is not None, "reverse_words or shout does not work"))


def rename(path):
    both = read(path, "store.py") + read(path, "main.py")
    return all_of(("fetch_item" in read(path, "store.py"), "store.py has no fetch_item"),
                  ("get_thing" not in both, "get_thing is still there"),
                  (runs(path, "python3 main.py") == "apple\n", "main.py does not print apple"))


def edit_document(path):
    text = read(path, "README.md")
    return all_of(("Version: 2.1" in text, "the version is not 2.1"), ("1.4" not in text, "1.4 is still there"),
                  ("## Install" in text and "pip install widget" in text and "## Usage" in text, "the rest was lost"))


def script(path):
    return all_of((bool(read(path, "squares.py")), "no squares.py"),
                  (read(path, "squares.txt").split() == ["1", "4", "9", "16", "25"], "squares.txt is wrong"))


def write_json(path):
    value = json.loads(read(path, "config.json"))
    return all_of((value == {"name": "demo", "port": 8080, "debug": False}, f"config.json is {value}"))


def delete_line(path):
    return all_of((read(path, "requirements.txt").split() == ["flask", "requests", "pyyaml"], "wrong lines are left"))


def mend_shell(path):
    return all_of((runs(path, "sh count.sh alpha beta gamma") == "3 arguments\n", "count.sh does not print 3 arguments"))


def add_argument(path):
    return all_of((runs(path, "python3 hello.py --name Ada") == "Hello, Ada\n", "--name does not work"),
                  (runs(path, "python3 hello.py") == "Hello, world\n", "the default is lost"))


def constant(path):
    text = read(path, "price.py")
    same = runs(path, 'python3 -c "import price; print(price.gross(100), price.tax(50))"')
    return all_of(("TAX_RATE = 0.19" in text, "there is no TAX_RATE = 0.19"), (text.count("0.19") == 1, "0.19 stands more than once"),
                  (same is not None and same.split() == ["119.0", "9.5"], f"the functions give {same}"))


def count(path):
    return all_of((read(path, "count.txt").strip() == "4", f"count.txt says {read(path, 'count.txt')[:40]!r}"))


TASKS = [
    Task("create a file", "Create the file greeting.txt with the content: Good morning, Vietnam", {}, create),
    Task("mend a failing test", "The test test_stats.py fails. Find the bug in stats.py and fix it.", {
        "stats.py": "def mean(values):\n    return sum(values) // len(values)\n",
        "test_stats.py": "from stats import mean\n\nassert mean([1, 2, 3, 4]) == 2.5, mean([1, 2, 3, 4])\nprint('ok')\n",
    }, mend_test),
    Task("add a function", "Add a function reverse_words(s) to text.py that returns the words of s in reverse order, joined by single spaces.", {
        "text.py": "def shout(s):\n    return s.upper() + '!'\n",
    }, add_function),
    Task("rename across two files", "Rename the function get_thing to fetch_item in store.py and main.py.", {
        "store.py": "ITEMS = {1: 'apple'}\n\n\ndef get_thing(key):\n    return ITEMS[key]\n",
        "main.py": "from store import get_thing\n\nprint(get_thing(1))\n",
    }, rename),
    Task("edit a document", "In README.md change the version from 1.4 to 2.1.", {
        "README.md": "# Widget\n\nVersion: 1.4\n\n## Install\n\n    pip install widget\n\n## Usage\n\nImport it and call `widget.run()`.\n",
    }, edit_document),
    Task("write and run a script", "Write squares.py, a script that prints the squares of 1 to 5, one per line. Run it and save its output in squares.txt.", {}, script),
    Task("write JSON", 'Create config.json with three keys: name is "demo", port is the number 8080, debug is false.', {}, write_json),
    Task("delete a line", "Remove numpy from requirements.txt.", {
        "requirements.txt": "flask\nnumpy\nrequests\npyyaml\n",
    }, delete_line),
    Task("mend a shell script", "count.sh should print how many arguments it was given, for example `3 arguments`, but it always prints `0 arguments`. Fix it.", {
        "count.sh": "#!/bin/sh\nn=0\necho \"$n arguments\"\n",
    }, mend_shell),
    Task("add an argument", "Give hello.py an optional argument --name. `python3 hello.py --name Ada` must print `Hello, Ada`; without the argument it still prints `Hello, world`.", {
        "hello.py": "def main():\n    print('Hello, world')\n\n\nif __name__ == '__main__':\n    main()\n",
    }, add_argument),
    Task("extract a constant", "In price.py, replace the repeated number 0.19 by a constant TAX_RATE defined once at the top of the file.", {
        "price.py": "def tax(net):\n    return net * 0.19\n\n\ndef gross(net):\n    return net + net * 0.19\n",
    }, constant),
    Task("count and write it down", "Count the lines in log.txt that contain the word ERROR and write only the number into count.txt.", {
        "log.txt": "INFO start\nERROR disk\nINFO go\nERROR net\nWARN slow\nERROR disk\nINFO go\nINFO go\nERROR mem\nINFO end\n",
    }, count),
]
