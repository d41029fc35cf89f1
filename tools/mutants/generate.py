"""
Generation of mutants: all single changes of a source file by a set of operators, except those without a visible effect.

Requires cosmic-ray, which provides most operators; `by_edits` adds others. Prints one JSON object for each mutant.
"""

import ast
import difflib
import json
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

COMPARISONS = "Eq_NotEq NotEq_Eq Lt_GtE Lt_LtE LtE_Gt LtE_Lt Gt_LtE Gt_GtE GtE_Lt GtE_Gt Is_IsNot IsNot_Is"
ARITHMETIC = "Add_Sub Sub_Add Mul_Div Div_Mul FloorDiv_Mul Mod_Mul Pow_Mul LShift_RShift RShift_LShift BitOr_BitAnd BitAnd_BitOr"
OTHERS = """
    ReplaceUnaryOperator_Delete_USub ReplaceUnaryOperator_Delete_Invert ReplaceUnaryOperator_Delete_Not AddNot
    ReplaceTrueWithFalse ReplaceFalseWithTrue ReplaceAndWithOr ReplaceOrWithAnd ReplaceBreakWithContinue
    ReplaceContinueWithBreak NumberReplacer RemoveDecorator ZeroIterationForLoop
"""
COSMIC_RAY = [
    *(f"ReplaceComparisonOperator_{pair}" for pair in COMPARISONS.split()),
    *(f"ReplaceBinaryOperator_{pair}" for pair in ARITHMETIC.split()),
    *OTHERS.split(),
]
OPPOSITE = {ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In}
CACHES = {"cache", "lru_cache", "runtime_checkable", "overload"}
Mutations = Iterator[tuple[str, str]]  # the name of an operator, and the mutated source


def by_cosmic_ray(source: str) -> Mutations:
    """Yield the mutations of *source* by the operators of cosmic-ray."""
    tree = get_ast(source)
    for name in COSMIC_RAY:
        operator = get_operator(f"core/{name}")()
        count = sum(1 for node in ast_nodes(tree) for _ in operator.mutation_positions(node))
        for occurrence in range(count):
            yield name, mutate_code(source, operator, occurrence) or source


def edited(source: str, node: ast.AST, text: str) -> str:
    """Return *source* with *node* replaced by *text*."""
    lines = source.encode().splitlines(keepends=True)
    starts = [sum(map(len, lines[:number])) for number in range(len(lines))]
    start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
    whole = source.encode()
    return (whole[:start] + text.encode() + whole[end:]).decode()


def by_edits(source: str) -> Mutations:
    """Yield *source* with one statement, guard or caught error removed, one result replaced by None, or two arguments swapped."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Call()) | ast.Raise() | ast.AugAssign() | ast.Delete():
                yield "RemoveStatement", edited(source, node, "pass")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield "RemoveStatement", edited(source, node, "pass")
            case ast.If(orelse=[]):
                yield "RemoveGuard", edited(source, node, "pass")
            case ast.ExceptHandler(type=ast.expr()):
                yield "CatchNothing", edited(source, node.type, "()")
            case ast.Return(value=ast.expr()):
                yield "ReturnNone", edited(source, node.value, "None")
            case ast.Call(args=[ast.Name() | ast.Attribute() as first, ast.Name() | ast.Attribute() as second, *_]):
                texts = [ast.get_source_segment(source, argument) or "" for argument in (first, second)]
                yield "SwapArguments", edited(edited(source, second, texts[0]), first, texts[1])


class Visible(ast.NodeTransformer):
    """
    Transformer that keeps only the code with a visible effect.

    It drops docstrings, annotations, protocols, messages of errors and warnings, caches, and `strict` of `zip`.
    """

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Drop the docstring, annotations and caches."""
        self.generic_visit(node)
        node.returns = None
        node.decorator_list = [decorator for decorator in node.decorator_list if _name(decorator) not in CACHES]
        return _without_docstring(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Drop the docstring, and the body of a protocol."""
        self.generic_visit(node)
        node.decorator_list = [decorator for decorator in node.decorator_list if _name(decorator) not in CACHES]
        if any(_name(base) == "Protocol" for base in node.bases):
            node.body = []
        return _without_docstring(node)

    def visit_Module(self, node: ast.Module) -> ast.AST:
        """Drop the docstring."""
        self.generic_visit(node)
        return _without_docstring(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        """Drop the annotation."""
        node.annotation = None
        return node

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        """Make all parameters positional-or-keyword: cosmic-ray mutates the star in a signature as if it were a product."""
        self.generic_visit(node)
        node.args = [*node.posonlyargs, *node.args, *node.kwonlyargs]
        node.defaults += [default for default in node.kw_defaults if default]
        node.posonlyargs, node.kwonlyargs, node.kw_defaults = [], [], []
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Drop the annotation, and the value of a type alias."""
        self.generic_visit(node)
        if _name(node.annotation) == "TypeAlias":
            node.value = None
        node.annotation = ast.Constant(None)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """Replace `not a is b` by `a is not b`, and likewise for `==` and `in`."""
        self.generic_visit(node)
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=ast.Compare(ops=[operator]) as compared) if type(operator) in OPPOSITE:
                compared.ops = [OPPOSITE[type(operator)]()]
                return compared
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        """Drop the message and the cause."""
        self.generic_visit(node)
        if isinstance(node.exc, ast.Call):
            node.exc.args = []
        node.cause = None
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Drop the arguments of a warning, and `strict` of `zip`."""
        self.generic_visit(node)
        if _name(node.func) == "warn":
            node.args, node.keywords = [], []
        if _name(node.func) == "zip":
            node.keywords = []
        return node


def _name(node: ast.expr) -> str:
    """Return the last name of an expression such as `pytest.fixture(...)` or `Generic[T]`; "" if it has none."""
    node = node.func if isinstance(node, ast.Call) else node
    node = node.value if isinstance(node, ast.Subscript) else node
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _without_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> ast.AST:
    if node.body and isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant):
        node.body = node.body[1:] or [ast.Pass()]
    return node


def visible(source: str) -> str | None:
    """Return the code of *source* that has a visible effect; None if the source is not valid Python."""
    try:
        return ast.dump(Visible().visit(ast.parse(source)))
    except SyntaxError:
        return None


def mutants(source: str) -> Iterator[tuple[str, str, str]]:
    """Yield (operator, source, visible code) for each mutant of *source*; of mutants with equal code, only the first."""
    yielded = {visible(source), None}
    for mutations in (by_cosmic_ray, by_edits):
        for operator, mutated in mutations(source):
            if (code := visible(mutated)) and code not in yielded:
                yielded.add(code)
                yield operator, mutated, code


def change(source: str, mutated: str) -> tuple[int, str, str]:
    """Return the number of the first line that differs, and the old and the new text of the lines changed there."""
    old, new = source.splitlines(), mutated.splitlines()
    blocks = [block for block in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes() if block[0] != "equal"]
    _, start, end, new_start, new_end = blocks[0]
    return start + 1, " ".join(map(str.strip, old[start:end])), " ".join(map(str.strip, new[new_start:new_end]))


def main(paths: list[str]) -> None:
    """Print all mutants of the files at *paths*."""
    for path in paths:
        source = Path(path).read_text()
        for operator, mutated, code in mutants(source):
            line, before, after = change(source, mutated)
            mutant = {"file": path, "line": line, "operator": operator, "before": before, "after": after, "source": mutated}
            key = sha256(f"{path} {code}".encode()).hexdigest()  # stays the same if a docstring changes
            print(json.dumps({**mutant, "key": key}))


if __name__ == "__main__":
    main(sys.argv[1:])
