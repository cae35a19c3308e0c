package m

func one(x int) int {
	a := x + 1
	b := a * 2
	c := foo(b)
	return c
}

func three(x int) int {
	a := x + 1
	b := a * 2
	c := foo(b)
	return c
}

func two(x int) int {
	a := x + 1
	b := a * 2
	b = clamp(b)
	c := foo(b)
	return c
}

