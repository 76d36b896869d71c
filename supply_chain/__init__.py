"""What the project is built of and into: lock file, licences, known vulnerabilities, archives."""
