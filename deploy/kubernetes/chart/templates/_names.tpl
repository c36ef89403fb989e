{{- define "vllm-watch.labels" -}}
app.kubernetes.io/name: vllm-watch
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- define "vllm-watch.selector" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
vllm-watch: metrics-only
{{- end }}
