# SPDX-License-Identifier: Apache-2.0
"""python -m tersor: becomes the program."""
import os
import sys

from tersor import program

os.execv(program(), ["tersor", *sys.argv[1:]])
