"""The structure as a document: snapshots, their differences, and changes by them."""
