"""Loads the mirror files that the page shows.

A file is read again only if it changed, as a large file takes seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from open_mirroring.config import ConfigError, Mirror, load_mirror, mirror_files
from open_mirroring.config.problems import Problem
from open_mirroring.reconciliation.owning import standing


class MirrorShelf:
    """The mirror files in *places*; each place is a file or a folder of files.

    A mirror file with mistakes does not hide the other mirrors.
    """

    def __init__(self, places: Sequence[Path]) -> None:
        self._places = tuple(places)
        self._read: dict[Path, tuple[tuple[int, int], Mirror | ConfigError]] = {}
        self._lock = threading.Lock()

    def look(self) -> tuple[dict[str, Mirror], list[Problem]]:
        """Return the mirrors by name, as their files are now, and the problems of files that cannot be used."""
        mirrors: dict[str, Mirror] = {}
        problems: list[Problem] = []
        with self._lock:
            for place in self._places:
                if not place.exists():
                    what = "there is no such mirror file or folder of them"
                    problems.append(Problem("CONFIG_INVALID", place, 1, "", what, "create it, or name another one"))
            files = [file for place in self._places for file in (mirror_files(place) if place.is_dir() else [place])]
            for file in files:
                found = self._one(file)
                if isinstance(found, ConfigError):
                    problems += found.problems
                elif found is not None and (other := mirrors.get(found.name)) is not None:
                    # The file that runs is shown, whatever its name (G-175).
                    shown, wrong = (found, other) if standing(found) > standing(other) else (other, found)
                    mirrors[found.name] = shown
                    what = f"{shown.file} has a mirror of this name, too"
                    problems.append(Problem("MIRROR_CLASH", wrong.file, 1, "mirror", what, "give each its own name"))
                elif found is not None:
                    mirrors[found.name] = found
        return dict(sorted(mirrors.items())), problems

    def _one(self, file: Path) -> Mirror | ConfigError | None:
        try:
            stat = file.stat()
        except FileNotFoundError:
            return None
        stamp = (stat.st_mtime_ns, stat.st_size)
        known = self._read.get(file)
        if known is None or known[0] != stamp:
            try:
                known = (stamp, load_mirror(file))
            except ConfigError as error:
                known = (stamp, error)
            self._read[file] = known
        return known[1]
