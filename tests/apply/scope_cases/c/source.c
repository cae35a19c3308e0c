static const int table[] = {
    1,
    2,
};

typedef struct named {
  int x;
} named_t;

typedef struct {
  int y;
} unnamed_t;

static inline int f(named_t *p, int (*callback)(int)) {
  switch (p->x) {
    case 1: {
      return callback('{');
    }
  }
  return 0;
}

int *pointer(void) {
  return 0;
}
