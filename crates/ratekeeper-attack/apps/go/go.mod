module ratekeeper-attack

go 1.22
