# SPDX-License-Identifier: Apache-2.0
"""Mutants of C source: small changes of one line that a good test notices.

candidates(path, text) yields every mutant of a file.  chosen() takes those with the smallest hash of
seed, file, line and change, so that an edit elsewhere leaves the choice as it is.
"""
import collections
import hashlib
import re

Mutant = collections.namedtuple("Mutant", "path line operator old new")

SWAPS = {" < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > ", " == ": " != ", " != ": " == ",
         " && ": " || ", " || ": " && "}


def blanked(text):
    """The text with comments and the insides of strings as blanks, so that columns stay."""
    pattern = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def closing(code, at):
    """Where the parenthesis that opens at `at` closes, or None."""
    depth = 0
    for place in range(at, len(code)):
        depth += (code[place] == "(") - (code[place] == ")")
        if depth == 0:
            return place
    return None


def of_conditions(code, line):
    for match in re.finditer(r"\bif \(", code):
        end = closing(code, match.end() - 1)
        if end:
            yield ("negated condition",
                   f"{line[:match.end()]}!({line[match.end():end]}){line[end:]}")


def of_operators(code, line):
    for match in re.finditer("|".join(map(re.escape, SWAPS)), code):
        yield "comparison", line[:match.start()] + SWAPS[match[0]] + line[match.end():]


def of_constants(code, line):
    for match in re.finditer(r"(?<![\w.])(\d+|0x[0-9a-fA-F]+)([uUlL]*)(?![\w.])", code):
        octal = re.match("0[0-7]", match[1])
        number = f"0{int(match[1], 8) + 1:o}" if octal else str(int(match[1], 0) + 1)
        yield "constant", line[:match.start()] + number + match[2] + line[match.end():]


def of_errors(code, line):
    """An error that is found and not returned; the call may go on in the next line."""
    if re.match(r"\s+TSR_TRY\(", code):
        yield "dropped error", line.replace("TSR_TRY(", "(void)(", 1)
    if re.match(r"\s+return (tsr_fail|fail|FAIL|refuse)\w*\(", code):
        yield "dropped error", line.replace("return ", "(void)", 1)


def of_statements(code, line):
    call = r"\s+(?!return\b|else\b|if\b|for\b|while\b|do\b|case\b|goto\b)[\w>.*&\[\]()-]+\(.*\);\s*$"
    change = r"\s+[\w>.*\[\]()-]+( [-+*/|&^<>]*= .*|\+\+|--);\s*$"
    if (re.match(call, code) or re.match(change, code)) and "TSR_TRY" not in code:
        yield "deleted statement", re.match(r"\s*", line)[0] + ";"


OPERATORS = (of_conditions, of_operators, of_constants, of_errors, of_statements)


def candidates(path, text):
    lines, codes = text.split("\n"), blanked(text).split("\n")
    depth, directive = 0, False
    for number, (line, code) in enumerate(zip(lines, codes), 1):
        inside = depth > 0
        depth += code.count("{") - code.count("}")
        directive = directive or code.lstrip().startswith("#")
        if inside and not directive:
            for operator in OPERATORS:
                for name, new in operator(code, line):
                    yield Mutant(path, number, name, line, new)
        directive = directive and code.endswith("\\")


def chosen(paths, seed):
    """All mutants of the files, in the order in which they are chosen."""
    def key(mutant):
        text = f"{seed}\n{mutant.path}\n{mutant.old}\n{mutant.new}"
        return hashlib.sha256(text.encode()).digest(), mutant.line
    return sorted((m for path in paths for m in candidates(str(path), path.read_text())), key=key)
