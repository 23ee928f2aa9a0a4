from __future__ import annotations

import pytest

from refocal.explore import write_page


@pytest.fixture(scope="session")
def explorer(tmp_path_factory):
    path = tmp_path_factory.mktemp("explore") / "explore.html"
    write_page(path)
    return path
