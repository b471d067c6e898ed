"""Reports of parts: their last member is the hash of all that goes before."""
import json
import re

import xxhash


def sealed(report):
    """The text of a report, given as text or as its JSON, with the hash that belongs to it."""
    text = report if isinstance(report, str) else json.dumps(report, separators=(",", ":"))
    text = re.sub(r',"xxh3":"[0-9a-f]*"}\s*$', "", text)
    return f'{text},"xxh3":"{xxhash.xxh3_64_hexdigest(text.encode())}"}}\n'
