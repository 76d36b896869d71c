"""Activity, revisions and reverts of items, and comments on them."""
