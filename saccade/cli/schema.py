"""Print the JSON schema of recipes: `python -m saccade.cli.schema > saccade/recipes/schema.json`.

The file is shipped, so that `saccade settings` and editors need no torch; a test holds it equal to the code.
"""

import json
import sys


def schema_of_recipes() -> str:
    from saccade.recipe import schema

    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_of_recipes())
