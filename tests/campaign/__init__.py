"""A campaign by table against the checkers of certificates: mutants of small right pairs of texts, and their judge.

Every kind of mutant has a *cell*: the row says what is attacked (a shape of operands in LLVM's tables, a form of move
in a context, a field of the header, a line of a certificate), the column how. A mutant is *equivalent* where an
argument that is coded beside its kind says that the text still is right, or that its change says nothing: then either
answer will do. Every other one must be refused by each checker alone, with whatever certificate.
"""
