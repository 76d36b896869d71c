"""What the project is built of and into: the lock file, licences, known vulnerabilities, archives."""
