package schema

import _ "embed"

//go:embed jobs.txt
var sourceJobs string
