package bench

import "html/template"

// reportPage is the page. Its policy forbids it to load anything.
var reportPage = template.Must(template.New("report").Funcs(template.FuncMap{"num": num, "amount": amount, "bytes": func(n uint64) string { return bytesText(float64(n)) }}).Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Scenario}} – Incumbent load report</title>
<style>
:root{color-scheme:light dark;--bg:#fff;--fg:#1a1d21;--dim:#656d76;--grid:#e3e6ea;--ok:#1a7f37;--bad:#cf222e;
--c0:#0969da;--c1:#bc4c00;--c2:#8250df;--c3:#1a7f37;--c4:#bf3989;--c5:#6e7781}
@media(prefers-color-scheme:dark){:root{--bg:#0d1117;--fg:#e6edf3;--dim:#8b949e;--grid:#262c34;--ok:#3fb950;--bad:#f85149;
--c0:#58a6ff;--c1:#f0883e;--c2:#bc8cff;--c3:#56d364;--c4:#f778ba;--c5:#8b949e}}
body{font:15px/1.5 system-ui,sans-serif;background:var(--bg);color:var(--fg);max-width:1500px;margin:0 auto;padding:1.5rem}
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .5rem}
.dim{color:var(--dim)}.ok{color:var(--ok);font-weight:600}.bad{color:var(--bad);font-weight:600}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}th,td{padding:.25rem .8rem;text-align:right;border-bottom:1px solid var(--grid)}
th:first-child,td:first-child{text-align:left;padding-left:0}th{font-weight:600}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,560px),1fr));gap:1.2rem}
svg{width:100%;height:auto}.grid{stroke:var(--grid)}.mark{stroke:var(--dim);stroke-dasharray:2 3}.tick{fill:var(--dim);font-size:11px}.title{fill:var(--fg);font-size:13px;font-weight:600}
.again{stroke-dasharray:5 3}text.again{text-decoration:underline dashed}.line{fill:none;stroke-width:1.6;stroke-linejoin:round}.key{font-size:12px}
.c0{stroke:var(--c0)}.c1{stroke:var(--c1)}.c2{stroke:var(--c2)}.c3{stroke:var(--c3)}.c4{stroke:var(--c4)}.c5{stroke:var(--c5)}
text.c0{fill:var(--c0);stroke:none}text.c1{fill:var(--c1);stroke:none}text.c2{fill:var(--c2);stroke:none}text.c3{fill:var(--c3);stroke:none}text.c4{fill:var(--c4);stroke:none}text.c5{fill:var(--c5);stroke:none}
circle.c0{fill:var(--c0)}circle.c1{fill:var(--c1)}circle.c2{fill:var(--c2)}
code{font:13px/1.4 ui-monospace,monospace;overflow-wrap:anywhere}
.wide{overflow-x:auto}
</style></head><body>
<h1>{{.Scenario}} {{if .Passed}}<span class="ok">passed</span>{{else if .Interrupted}}<span class="bad">interrupted</span>{{else}}<span class="bad">failed</span>{{end}}</h1>
<p class="dim">{{.Started.Format "2006-01-02 15:04:05 MST"}}, {{num .Seconds}} s · {{.Machine.CPU}}, {{.Machine.Cores}} cores, kernel {{.Machine.Kernel}}{{range $k, $v := .Versions}} · {{$k}} {{$v}}{{end}}</p>
{{if .Interrupted}}<p>The run was interrupted: this is what was measured up to then, and no threshold is judged.</p>{{end}}
{{if .Command}}<p><code>{{.Command}}</code></p>{{end}}
<h2>Correctness</h2>
<p>{{if or .Lost .Violations}}<span class="bad">lost {{.Lost}}, violations {{.Violations}}</span>{{else}}<span class="ok">lost 0, violations 0</span>{{end}}, lapsed {{.Lapsed}}, refused {{.Refused}}</p>
{{if .Texts}}<ul>{{range .Texts}}<li>{{.}}</li>{{end}}</ul>{{end}}
{{if .Thresholds}}<div class="wide"><table><tr><th>threshold</th><th>measured</th><th>at most</th><th></th></tr>
{{range .Thresholds}}<tr><td>{{.Name}}</td><td>{{amount .Name .Value}}</td><td>{{amount .Name .Limit}}</td><td>{{if .OK}}<span class="ok">ok</span>{{else}}<span class="bad">failed</span>{{end}}</td></tr>{{end}}</table></div>{{end}}
<h2>Operations</h2>
<div class="wide"><table><tr><th>operation</th><th>count</th><th>errors</th><th>per second</th><th>p50 ms</th><th>p90 ms</th><th>p99 ms</th><th>p99.9 ms</th><th>max ms</th>{{if .CPUEach}}<th>server CPU µs each</th>{{end}}</tr>
{{range $n, $o := .Ops}}<tr><td>{{$n}}</td><td>{{$o.Count}}</td><td>{{$o.Errors}}</td><td>{{num $o.Rate}}</td><td>{{num $o.P50}}</td><td>{{num $o.P90}}</td><td>{{num $o.P99}}</td><td>{{num $o.P999}}</td><td>{{num $o.Max}}</td>{{if $.CPUEach}}<td>{{if $o.CPUMicros}}{{num $o.CPUMicros}}{{end}}</td>{{end}}</tr>{{end}}</table></div>
{{if gt (len .Steps) 1}}<h2>Steps</h2>
<div class="wide"><table><tr><th>leases</th>{{range .StepOps}}<th>{{.}}</th><th>p50 ms</th><th>p99 ms</th><th>max ms</th>{{end}}</tr>
{{range $s := .Steps}}<tr><td>{{.Leases}} {{.Phase}}</td>{{range $.StepOps}}{{$o := index $s.Ops .}}<td>{{$o.Count}}</td><td>{{num $o.P50}}</td><td>{{num $o.P99}}</td><td>{{num $o.Max}}</td>{{end}}</tr>{{end}}</table></div>{{end}}
{{if .Facts}}<h2>Figures</h2><div class="wide"><table>{{range $k, $v := .Facts}}<tr><td>{{$k}}</td><td>{{amount $k $v}}</td></tr>{{end}}</table></div>{{end}}
{{if .Servers}}<h2>Servers</h2><div class="wide"><table><tr><th>server</th><th>resident</th><th>CPU seconds</th><th>open sockets</th></tr>
{{range $i, $s := .Servers}}<tr><td>{{if $s.Name}}{{$s.Name}}{{else}}{{$i}}{{end}}</td><td>{{bytes $s.RSS}}</td><td>{{num $s.CPU}}</td><td>{{$s.Connections}}</td></tr>{{end}}</table></div>{{end}}
<h2>Charts</h2>
<div class="charts">{{range .Charts}}<figure style="margin:0">{{.}}</figure>{{end}}</div>
</body></html>
`))
