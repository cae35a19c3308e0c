from pkg.mod import Spec

spec = Spec(
    size=1,
    ratio=4,
)
