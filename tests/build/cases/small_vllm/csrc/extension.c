#include <Python.h>

static PyObject *answer(PyObject *self, PyObject *unused) { return PyLong_FromLong(42); }

static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, "42"}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_C", 0, -1, methods};

PyMODINIT_FUNC PyInit__C(void) { return PyModule_Create(&module); }
