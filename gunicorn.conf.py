"""For a gunicorn of your own, with a DATABASE_URL: `gunicorn 'cms.app:create_wsgi()'`."""

import os
import sys
from pathlib import Path

from cms.config import ConfigError, load
from cms.gunicorn_process import gunicorn_settings

try:
    globals().update(gunicorn_settings(load(os.environ, folder=Path.cwd())))
except ConfigError as error:
    sys.exit(f"Error: {error}")  # gunicorn would print a traceback
