"""The tests. What helpers assert is explained like the assertions of the tests themselves."""

import sys
from pathlib import Path

if "pytest" in sys.modules:  # it is not in the servers that tests start
    names = (f"{__name__}.{path.stem}" for path in Path(__file__).parent.iterdir())
    sys.modules["pytest"].register_assert_rewrite(*names)
