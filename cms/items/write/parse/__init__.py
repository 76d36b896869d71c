"""The first stage: payloads become sets of rows, before the database is asked about them."""
