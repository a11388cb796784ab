"""Runs a query in DuckDB, and prints names of columns and rows as literals of SQL: what DuckDB's own
program prints with -quote.

Arguments: statements to prepare the tables; one that locks DuckDB, or none; the query.
"""

import sys

# Not from the current folder.
sys.path = [folder for folder in sys.path if folder]

import decimal
import signal

import duckdb

ROWS = 1000


def literal(value):
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float, decimal.Decimal)):
        return str(value)
    return "'" + str(value).replace("'", "''") + "'"


def print_row(values):
    print("|".join(map(literal, values)))


def main(setup, lock, query):
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="replace", newline="\n")
    try:
        database = duckdb.connect()
        # Names in the query are those of tables, not of variables here.
        database.execute("SET python_enable_replacements = false")
        database.execute(setup)
        if lock:
            database.execute(lock)
        result = database.execute(query)
        if result.description:
            print_row(str(column[0]) for column in result.description)
            while rows := result.fetchmany(ROWS):
                for row in rows:
                    print_row(row)
        sys.stdout.flush()
    except duckdb.Error as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
