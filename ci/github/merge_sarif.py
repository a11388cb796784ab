"""Joins the SARIF files of a folder into one run, which is what code scanning takes for a tool."""

import glob
import json
import os
import sys


def merged(logs):
    """One log with the rules and results of all."""
    first = logs[0]
    run = first["runs"][0]
    rules = {}
    results = []
    for log in logs:
        for one in log["runs"]:
            rules.update((rule["id"], rule) for rule in one["tool"]["driver"]["rules"])
            results += one["results"]
    names = sorted(rules)
    for result in results:
        result["ruleIndex"] = names.index(result["ruleId"])
    run["tool"]["driver"]["rules"] = [rules[name] for name in names]
    run["results"] = results
    return first


def main(folder, output):
    logs = []
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "check-*.sarif"))):
        with open(path, encoding="utf-8") as file:
            logs.append(json.load(file))
    if logs:
        with open(output, "w", encoding="utf-8") as file:
            json.dump(merged(logs), file, indent=2)


if __name__ == "__main__":
    main(*sys.argv[1:])
