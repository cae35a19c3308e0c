// Stands in for cuBLAS's header where the toolkit lacks it. torch's headers only name these types;
// what calls cuBLAS does not compile with it.
#pragma once
typedef struct cublasContext *cublasHandle_t;
