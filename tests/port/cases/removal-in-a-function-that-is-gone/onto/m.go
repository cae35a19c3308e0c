package m

func uno(x int) int {
	first := x + 1
	q := b * 2
	d := bar(b)
	return d
}

func three(x int) int {
	first := x + 1
	q := b * 2
	d := bar(b)
	return d
}

