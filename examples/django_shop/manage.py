"""`python examples/django_shop/manage.py COMMAND`"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Run a command of Django's, of the shop's or of outlast's."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.django_shop.settings")
    from django.core.management import execute_from_command_line  # noqa: PLC0415 -- it needs the path above

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
