"""Run the service under a gunicorn of your own, with a DATABASE_URL: `gunicorn 'cms.app:create_wsgi()'`."""

import os
from pathlib import Path

from cms.config import load
from cms.server import settings

globals().update(settings(load(os.environ, folder=Path.cwd())))
