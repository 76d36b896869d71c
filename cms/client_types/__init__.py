"""Types of the collections in the languages of clients: TypeScript and Python."""
