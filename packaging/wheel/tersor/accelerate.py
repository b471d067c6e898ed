# SPDX-License-Identifier: Apache-2.0
"""Packed checkpoints of Accelerate: in place of ``accelerator.save_state(path)`` and ``load_state(path)``.

    save_state(accelerator, "run/step-100")
    load_state(accelerator, "run/step-100")
"""
from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any

import tersor

__all__ = ["load_state", "save_state"]


def save_state(accelerator: Any, path: Any, **options: Any) -> None:
    """Save the state of an accelerator into a new packed directory.

    Accelerate writes its directory beside `path`; the main process packs it with these options of `tersor.pack`
    and removes it.  Every process has to call this.
    """
    path = os.path.abspath(os.fspath(path))
    plain = path + ".unpacked"
    accelerator.save_state(plain)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        tersor.pack(plain, os.path.join(path, ""), force=True, **options)
        shutil.rmtree(plain)
    accelerator.wait_for_everyone()


def load_state(accelerator: Any, path: Any, **arguments: Any) -> None:
    """Load what `save_state` saved; arguments are those of ``accelerator.load_state``."""
    path = os.path.abspath(os.fspath(path))
    folder = tempfile.mkdtemp(prefix=".unpacked-", dir=os.path.dirname(path))
    try:
        tersor.unpack(path, os.path.join(folder, "state", ""))
        accelerator.load_state(os.path.join(folder, "state"), **arguments)
    finally:
        shutil.rmtree(folder)
