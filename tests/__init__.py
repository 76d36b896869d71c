"""The tests. What helpers assert is explained like the assertions of the tests themselves."""

import sys

if "pytest" in sys.modules:  # it is not in the servers that tests start
    sys.modules["pytest"].register_assert_rewrite(__name__)
