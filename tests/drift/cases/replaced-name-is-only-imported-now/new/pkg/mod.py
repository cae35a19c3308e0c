from pkg.far import helper

value = helper(1)
