from pkg.mod import Spec

spec = Spec(
    size=1,
    tokens_each=4,
)
