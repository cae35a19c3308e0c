static int first(int v)
{
	int r = v;
	r += 2;
	return r;
}

static int second(int v)
{
	int r = v;
	r += 2;
	return r;
}

