{{- define "vllm-watch.name" -}}
{{ .Values.fullnameOverride | default (list .Release.Name .Values.nameOverride | compact | join "-") | trunc 63 | trimSuffix "-" }}
{{- end }}
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
{{- /* A selector as kubectl takes it, as one that a policy takes. */ -}}
{{- define "vllm-watch.podSelector" -}}
{{- $labels := dict }}
{{- $expressions := list }}
{{- range regexFindAll "[^\\s,(][^,(]*(\\([^)]*\\))?" . -1 }}
{{- $words := regexFindAll "[^\\s,()=!]+|[=!]+" . -1 }}
{{- if eq (first $words) "!" }}
{{- $expressions = append $expressions (dict "key" (last $words) "operator" "DoesNotExist") }}
{{- else if eq (len $words) 1 }}
{{- $expressions = append $expressions (dict "key" (first $words) "operator" "Exists") }}
{{- else if has (index $words 1) (list "=" "==") }}
{{- $labels = set $labels (first $words) (slice $words 2 | join "") }}
{{- else }}
{{- $operator := ternary "In" "NotIn" (eq (index $words 1) "in") }}
{{- $values := slice $words 2 | default (list "") }}
{{- $expressions = append $expressions (dict "key" (first $words) "operator" $operator "values" $values) }}
{{- end }}
{{- end }}
{{- $selector := dict }}
{{- with $labels }}{{ $selector = set $selector "matchLabels" . }}{{ end }}
{{- with $expressions }}{{ $selector = set $selector "matchExpressions" . }}{{ end }}
{{- toJson $selector }}
{{- end }}
