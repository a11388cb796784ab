"""Prints a line for each name of the Python package that users may rely on, from its sources."""

import ast
import pathlib
import sys

PACKAGE = pathlib.Path(sys.argv[1])
# What makes an object a sequence, an iterator or a context.
PROTOCOLS = ("__len__", "__getitem__", "__iter__", "__enter__")


def parse(name):
    """The definitions of a module of the package, by name."""
    file = next(path for path in (PACKAGE / f"{name}.pyi", PACKAGE / f"{name}.py") if path.exists())
    body = ast.parse(file.read_text()).body
    return {node.name: node for node in body if hasattr(node, "name")}


def is_public(name):
    return not name.startswith("_") or name in PROTOCOLS


def print_function(path, node):
    """A line for the function, and one for each parameter: with `=` if it may be left out."""
    print(f"{path}()")
    positional = [*node.args.posonlyargs, *node.args.args]
    if positional and positional[0].arg in ("self", "cls"):
        positional.pop(0)
    first_default = len(positional) - len(node.args.defaults)
    for at, argument in enumerate(positional):
        print(f"{path}({at}: {argument.arg}{'=' if at >= first_default else ''})")
    for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults):
        print(f"{path}({argument.arg}{'=' if default is not None else ', required'})")


def print_class(path, node):
    for base in node.bases:
        print(f"{path}: {ast.unparse(base)}")
    print(path)
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and is_public(member.name):
            names = [ast.unparse(decorator) for decorator in member.decorator_list]
            if "property" in names or "cached_property" in names:
                print(f"{path}.{member.name}")
            elif "overload" not in names:
                print_function(f"{path}.{member.name}", member)
        elif isinstance(member, ast.AnnAssign) and is_public(member.target.id):
            print(f"{path}.{member.target.id}")


def main():
    for node in ast.parse((PACKAGE / "__init__.pyi").read_text()).body:
        if isinstance(node, ast.FunctionDef):
            print_function(f"cutape.{node.name}", node)
        if not isinstance(node, ast.ImportFrom):
            continue
        definitions = parse(node.module)
        for alias in node.names:
            path, found = f"cutape.{alias.asname}", definitions[alias.name]
            (print_class if isinstance(found, ast.ClassDef) else print_function)(path, found)
    for node in ast.walk(ast.parse((PACKAGE / "pytest_plugin.py").read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "addoption":
            option = node.args[0]
            parts = option.values if isinstance(option, ast.JoinedStr) else [option]
            # What a loop puts in is `*`.
            words = (part.value if isinstance(part, ast.Constant) else "*" for part in parts)
            print("pytest " + "".join(words))



main()
