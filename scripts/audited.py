"""
Say what pip-audit has found in its JSON report; the exit status is 1 where there is something to mend.

Where no network led to a database of vulnerabilities the report has skips alone, or is not there:
then nothing was audited, which is said, and is no failure.
"""

import json
import sys
from pathlib import Path


def main(report: Path) -> int:
    """Read *report* and tell of it on standard output."""
    try:
        found = json.loads(report.read_text(encoding="utf-8"))["dependencies"]
    except (OSError, ValueError, KeyError, TypeError):
        found = []
    audited = [entry for entry in found if "vulns" in entry]
    if not audited:
        print("not audited: the database of vulnerabilities cannot be reached from here")
        return 0
    for entry in audited:
        for vulnerability in entry["vulns"]:
            fixed = ", ".join(vulnerability.get("fix_versions", ())) or "no version yet"
            print(f"{entry['name']} {entry['version']}: {vulnerability['id']}, mended in {fixed}")
    faulty = sum(bool(entry["vulns"]) for entry in audited)
    skipped = f", {len(found) - len(audited)} not known there" if len(found) > len(audited) else ""
    print(f"{len(audited)} packages audited{skipped}, {faulty} with known vulnerabilities")
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
