"""The description of the service for one caller, as a document of OpenAPI 3.1."""
