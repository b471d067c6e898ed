"""The sessions of a page of documentation: what it shows below `$ command` is what the command prints."""
import os
import re
import subprocess

from conftest import BINARY


def shows(shown, printed):
    """Whether a page shows what was printed; a line "..." stands for lines that are left out."""
    at, parts = 0, re.split(r"^\.\.\.\n", shown, flags=re.M)
    if len(parts) == 1:
        return shown == printed
    if not printed.startswith(parts[0]) or not printed.endswith(parts[-1]):
        return False
    for part in parts:
        found = printed.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return True


def refreshed(shown, printed):
    """What the page would show of a new output: the lines that were left out at its start are so again."""
    if shown.startswith("...\n") and shown.count("...\n") == 1:
        return "...\n" + printed[printed.index(shown.splitlines()[1].split("  ")[0]):]
    return shown if "...\n" in shown else printed


def check_sessions(page, folder):
    """Run every block of the page that starts with "$ ", in order, in the folder.

    TERSOR_REFRESH=1 puts what is printed now into the page."""
    env = dict(os.environ, LC_ALL="C")
    text = page.read_text()
    for session in re.findall(r"^```\n(\$ .*?)^```$", text, re.S | re.M):
        fresh, status = [], 0
        for command, shown in re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", session, re.M):
            done = subprocess.run(
                ["bash", "-c", f'tersor() {{ "{os.path.abspath(BINARY)}" "$@"; }}\n' +
                 command.replace("$?", str(status))], cwd=folder, env=env, text=True, timeout=60,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            status = done.returncode
            assert status in (0, 1), (command, done.stdout)
            # An empty line between two commands is layout.
            shown = shown if done.stdout.endswith("\n\n") else re.sub(r"\n\n\Z", "\n", shown).removeprefix("\n")
            if os.environ.get("TERSOR_REFRESH"):
                fresh.append((command, shown, refreshed(shown, done.stdout)))
            else:
                assert shows(shown, done.stdout), f"$ {command}\n{done.stdout}"
        for command, shown, now in fresh:
            text = text.replace(f"$ {command}\n{shown}", f"$ {command}\n{now}")
            page.write_text(text)
