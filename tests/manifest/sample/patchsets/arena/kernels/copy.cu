// named by the sample manifest
