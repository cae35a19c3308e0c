from pkg.mod import helper
