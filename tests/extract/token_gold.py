"""Steps labelled by hand, in the ways of several agents: (what the step was, its token)."""

from __future__ import annotations

from typing import Any

__all__ = ["GOLD"]


def sh(action: str, observation: str = "", code: int | None = 0) -> dict[str, Any]:
    """One bash call with its exit code."""
    return {
        "action": action, "observation": observation, "n_calls": 1, "tool": "bash",
        "exit_code": code,
    }  # fmt: skip


def mini(action: str, observation: str = "", code: int = 0) -> dict[str, Any]:
    """One command of an agent that wraps what it prints."""
    wrapped = f"<returncode>{code}</returncode>\n<output>\n{observation}</output>"
    return {"action": action, "observation": wrapped, "n_calls": 1, "tool": "bash"}


def swe(action: str, observation: str = "", tool: str | None = None) -> dict[str, Any]:
    """One command of SWE-agent: no exit code, the tool is the first word."""
    name = tool or action.split()[0]
    return {"action": action, "observation": observation, "n_calls": 1, "tool": name}


def call(name: str, arguments: str, observation: str = "") -> dict[str, Any]:
    """One function call."""
    return {
        "action": f"{name}({arguments})", "observation": observation, "n_calls": 1, "tool": name,
    }  # fmt: skip


def say(thought: str, reply: str = "") -> dict[str, Any]:
    """A turn that speaks to the user."""
    return {"thought": thought, "action": "", "observation": reply, "n_calls": 0, "tool": None}


TRACE = 'Traceback (most recent call last):\n  File "x.py", line 3, in <module>\nKeyError: 1\n'
NO_MODULE = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'zlob'\n"
PYTEST_OK = "===== test session starts =====\ncollected 4 items\n\n===== 4 passed in 0.12s =====\n"
PYTEST_BAD = "FAILED tests/test_a.py::test_b\n===== 1 failed, 3 passed in 0.31s =====\n"
UNITTEST_OK = "....\n-------\nRan 4 tests in 0.002s\n\nOK\n"
UNITTEST_BAD = "..E.\n-------\nRan 4 tests in 0.002s\n\nFAILED (errors=1)\n"
CODE = "def load(path):\n    raise ValueError('Error: no such thing, not found')\n"
WINDOW = "[File: /repo/pkg/core.py (80 lines total)]\n1:import os\n2:import sys\n"
REPRO = "cat <<'EOF' > reproduce_issue.py\nimport pkg\nprint(pkg.load('x'))\nEOF"

GOLD: list[tuple[dict[str, Any], str]] = [
    # ---- reading
    (mini("cat pkg/core.py", CODE), "look|src|ok"),
    (mini("nl -ba pkg/core.py | sed -n '10,40p'", CODE), "look|src|ok"),
    (mini("sed -n '1,20p' tests/test_core.py", CODE), "look|test|ok"),
    (mini("cd /testbed && head -n 40 docs/index.rst", "Title\n"), "look|doc|ok"),
    (mini("cat setup.py", "from setuptools import setup\n"), "look|config|ok"),
    (mini("ls -la", "total 8\n"), "look|none|ok"),
    (mini("ls pkg/sub", "a.py\n"), "look|folder|ok"),
    (mini("cat missing.py", "cat: missing.py: No such file or directory\n", 1),
     "look|src|not-found"),
    (sh("cat big.py", "x = 1\n" * 3000), "look|src|long"),
    (swe("open pkg/core.py 40", WINDOW), "look|src|ok"),
    (swe("goto 300", WINDOW), "look|none|ok"),
    (swe("scroll_down", WINDOW), "look|none|ok"),
    (swe("str_replace_editor view /testbed/pkg/core.py --view_range 1 9", "1\tx\n"),
     "look|src|ok"),
    (call("str_replace_editor", '{"command": "view", "path": "/workspace/pkg/core.py"}', "1\tx"),
     "look|src|ok"),
    (call("Read", '{"file_path": "/repo/tests/test_x.py"}', CODE), "look|test|ok"),
    (sh("pip list", "numpy 1.0\n"), "look|none|ok"),
    # ---- searching
    (mini("grep -rn 'def load' pkg/", "pkg/core.py:1:def load(path):\n"), "search|folder|ok"),
    (mini("grep -n 'class Widget' pkg/core.py", "3:class Widget:\n"), "search|src|ok"),
    (mini("grep 'nothing' pkg/core.py", "", 1), "search|src|empty"),
    (mini("find . -name '*.py' | head -5", "./a.py\n"), "search|folder|ok"),
    (mini("ls pkg | grep core", "core.py\n"), "search|folder|ok"),
    (mini("cat pkg/core.py | grep load", "def load\n"), "search|src|ok"),
    (swe('search_dir "load" pkg/', 'Found 2 matches for "load"\n'), "search|folder|ok"),
    (swe('find_file "core.py"', "No matches found for core.py\n"), "search|none|empty"),
    (call("Grep", '{"pattern": "load", "path": "pkg"}', "pkg/core.py"), "search|folder|ok"),
    # ---- git
    (mini("git diff", "diff --git a/x b/x\n"), "git|none|ok"),
    (mini("git status --short", ""), "git|none|empty"),
    (mini("git log --oneline pkg/core.py", "1234 fix\n"), "git|src|ok"),
    (mini("git checkout pkg/core.py", "Updated 1 path from the index\n"), "undo|src|ok"),
    (mini("git stash && pytest tests/test_core.py", PYTEST_BAD, 1), "undo|none|test-fail"),
    (mini("git add -A && git commit -m 'fix'", "1 file changed\n"), "commit|none|ok"),
    # ---- changing
    (mini("sed -i 's/a/b/' pkg/core.py", ""), "edit|src|ok"),
    (mini("sed -i 's/a' pkg/core.py", "sed: -e expression #1: unterminated `s' command\n", 1),
     "edit|src|syntax"),
    (mini("sed -i 's/a/b/' pkg/core.py && python -m pytest tests", PYTEST_OK),
     "edit|src|test-pass"),
    (mini("cat >> pkg/core.py <<'EOF'\nx = 1\nEOF", ""), "edit|src|ok"),
    (mini("python - <<'EOF'\ns = open('pkg/core.py').read()\n"
          "open('pkg/core.py', 'w').write(s.replace('a', 'b'))\nEOF", ""), "edit|src|ok"),
    (swe("edit 4:5\n    return 1\nend_of_edit", WINDOW), "edit|src|ok"),
    (swe("edit 4:5\n    return (\nend_of_edit",
         "Your proposed edit has introduced new syntax error(s). Please retry your edit\n"
         "- E999 SyntaxError: '(' was never closed\n"), "edit|none|syntax"),
    (swe("str_replace_editor str_replace /testbed/pkg/core.py --old_str 'a' --new_str 'b'",
         "The file /testbed/pkg/core.py has been edited.\n"), "edit|src|ok"),
    (call("str_replace_editor",
          '{"command": "str_replace", "path": "/repo/pkg/core.py", "old_str": "a"}',
          "No replacement was performed, old_str `a` did not appear verbatim"), "edit|src|error"),
    (call("str_replace_editor", '{"command": "undo_edit", "path": "/repo/pkg/core.py"}', "Done"),
     "undo|src|ok"),
    (call("edit_file", '{"path": "pkg/core.py", "text": "x"}', "ok"), "edit|src|ok"),
    (mini("mv pkg/a.py pkg/b.py", ""), "edit|src|ok"),
    # ---- writing
    (mini(REPRO, ""), "create|repro|ok"),
    (mini(REPRO + "\npython reproduce_issue.py", TRACE, 1), "create|repro|traceback"),
    (mini("cat <<'EOF' > fix.py\nopen('pkg/core.py', 'w').write('x')\nEOF\npython fix.py", ""),
     "edit|src|ok"),
    (mini("cat > tests/test_new.py <<EOF\ndef test(): pass\nEOF", ""), "create|test|ok"),
    (mini("echo 'x' > notes.txt", ""), "create|doc|ok"),
    (mini("mkdir -p demo/app", ""), "create|folder|ok"),
    (swe("create reproduce_bug.py", "[File: /repo/reproduce_bug.py (1 lines total)]\n1:\n"),
     "create|repro|ok"),
    (call("str_replace_editor",
          '{"command": "create", "path": "/workspace/a__b/check_it.py", "file_text": "x"}',
          "File created successfully at: /workspace/a__b/check_it.py"), "create|repro|ok"),
    (mini("rm reproduce_issue.py", ""), "delete|repro|ok"),
    (mini("rm nope.py", "rm: cannot remove 'nope.py': No such file or directory\n", 1),
     "delete|src|error"),
    # ---- running
    (mini("python reproduce_issue.py", "value 3\n"), "run|repro|ok"),
    (mini("python3 reproduce_issue.py", TRACE, 1), "run|repro|traceback"),
    (mini("python reproduce_issue.py", NO_MODULE, 1), "run|repro|import"),
    (mini("python reproduce_issue.py 2>&1 | tail -20", ""), "run|repro|empty"),
    (mini("timeout 60 python check.py", "", 124), "run|repro|timeout"),
    (mini("python3 -c 'print(1)'", "1\n"), "run|inline|ok"),
    (mini("python <<'EOF'\nimport pkg\nprint(pkg.x)\nEOF", "1\n"), "run|inline|ok"),
    (mini("python3 pkg/tool.py", "/bin/python3: can't open file\n", 2), "run|src|not-found"),
    (mini("./build.sh", "Permission denied\n", 126), "run|src|error"),
    (mini("frobnicate --all", "done\n"), "other|none|ok"),
    (mini("frobnicate --all", "bash: frobnicate: command not found\n", 127),
     "other|none|not-found"),
    (swe("python main.py", "EXECUTION TIMED OUT\n", "bash"), "run|src|timeout"),
    (mini("pip install -e .", "Successfully installed\n"), "install|folder|ok"),
    (mini("curl -s http://localhost/x", "<html></html>\n"), "browse|page|ok"),
    # ---- testing
    (mini("pytest tests/test_core.py", PYTEST_OK), "test|test|test-pass"),
    (mini("python -m pytest -q", PYTEST_BAD, 1), "test|none|test-fail"),
    (mini("pytest reproduce_issue.py", PYTEST_BAD, 1), "test|repro|test-fail"),
    (mini("python tests/runtests.py forms.tests", UNITTEST_OK), "test|test|test-pass"),
    (mini("cd tests && python manage.py test app", UNITTEST_BAD, 1), "test|test|test-fail"),
    (mini("python -m unittest pkg.tests", UNITTEST_BAD, 1), "test|test|test-fail"),
    (mini("pytest tests/test_none.py", "== no tests ran in 0.01s ==\n", 5), "test|test|empty"),
    (mini("python -m pytest tests", "/bin/python: No module named pytest\n", 1),
     "test|test|import"),
    (mini("npm test", "Tests: 2 failing\n", 1), "test|none|test-fail"),
    # ---- the end
    (mini("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && git add -A", ""), "submit|none|ok"),
    (swe("submit", "diff --git a/x b/x\n"), "submit|none|ok"),
    (call("finish", '{"message": "all done"}'), "submit|none|ok"),
    # ---- other agents
    (call("execute_bash", '{"command": "cd /repo && grep -n x a.py", "timeout": 3}', "1:x"),
     "search|src|ok"),
    (call("execute_bash", '{"command": "python reproduce.py"}',
          TRACE + "[The command completed with exit code 1.]"), "run|repro|traceback"),
    (call("execute_ipython_cell", '{"code": "print(1)"}', "1"), "run|inline|ok"),
    (call("browser", '{"code": "goto(\'http://x\')"}', "page"), "browse|page|ok"),
    (call("think", '{"thought": "hm"}', "Your thought has been logged."), "think|none|none"),
    (call("frobnicate", '{"a": 1}', "ok"), "call|none|ok"),
    ({"action": "SELECT name FROM pets", "observation": "[('Rex',)]"}, "look|data|ok"),
    # ---- services
    (call("get_user_details", '{"user_id": "u_1"}', '{"name": "A"}'), "look|user|ok"),
    (call("get_order_details", '{"order_id": "#W1"}', "Error: order not found"),
     "look|record|not-found"),
    (call("search_direct_flight", '{"origin": "A"}', "[]"), "search|item|empty"),
    (call("book_reservation", '{"user_id": "u_1"}', "Error: payment does not add up"),
     "create|record|mismatch"),
    (call("modify_pending_order_items", '{"order_id": "#W1"}', "Error: non-pending order"),
     "edit|item|forbidden"),
    (call("cancel_reservation", '{"reservation_id": "R1"}', '{"status": "cancelled"}'),
     "undo|record|ok"),
    (call("return_delivered_order_items", '{"order_id": "#W1"}', '{"status": "ok"}'),
     "undo|item|ok"),
    (call("transfer_to_human_agents", '{"summary": "no"}', "Transfer successful"), "ask|none|ok"),
    (call("calculate", '{"expression": "1 + 1"}', "2.0"), "run|none|ok"),
    (say("Could you tell me your user id?", "It is u_1."), "respond|question|reply"),
    (say("I would cancel it. Do you want to proceed (yes/no)?", "Yes, please."),
     "respond|confirm|reply-yes"),
    (say("Unfortunately, I cannot do that.", "Is there another way?"),
     "respond|refusal|reply-question"),
    (say("Your order has been cancelled.", "Thanks! ###STOP###"), "respond|report|reply-end"),
    (say("Please tell me the number of the order.", "No, I do not have it."),
     "respond|statement|reply-no"),
    # ---- turns in which nothing ran, and several calls in one
    ({"thought": "two blocks", "action": "", "observation": "", "flags": ["rejected"]},
     "none|none|refused"),
    ({"thought": "", "action": "", "observation": ""}, "none|none|none"),
    ({"action": 'get_user({"id": 1})\ncancel_order({"id": 2})', "observation": "ok",
      "n_calls": 2, "tool": "cancel_order"}, "undo|record|ok"),
    ({"action": "cat a.py\npytest tests", "observation": PYTEST_OK, "n_calls": 2, "tool": "bash"},
     "test|test|test-pass"),
]  # fmt: skip
