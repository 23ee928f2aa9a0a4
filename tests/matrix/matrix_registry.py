"""All entries."""

from __future__ import annotations

import matrix_entries
import matrix_measures
import matrix_moved

ENTRIES = [*matrix_entries.ENTRIES, *matrix_measures.ENTRIES, *matrix_moved.ENTRIES]
