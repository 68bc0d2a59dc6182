module mmq

go 1.22
