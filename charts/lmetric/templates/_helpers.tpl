{{- define "lmetric.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* RELEASE if it holds the chart's name, else RELEASE-CHART; at most 40 characters, since names grow from it. */}}
{{- define "lmetric.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains (include "lmetric.name" .) .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "lmetric.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "lmetric.operator" -}}
{{ include "lmetric.fullname" . }}-operator
{{- end }}

{{/* A Deployment's selector never changes, so neither do these. */}}
{{- define "lmetric.selectorLabels" -}}
app.kubernetes.io/component: operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/name: {{ include "lmetric.name" . }}
{{- end }}

{{/* Labels that every object has, in rising precedence: ours, commonLabels, then `own` of the object. */}}
{{- define "lmetric.labelsWith" -}}
{{- $root := .root }}
{{- $labels := dict
  "app.kubernetes.io/managed-by" $root.Release.Service
  "app.kubernetes.io/part-of" "lmetric"
  "app.kubernetes.io/version" ($root.Chart.AppVersion | replace "+" "_")
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") }}
{{- toYaml (mergeOverwrite $labels $root.Values.commonLabels .own) }}
{{- end }}

{{/* Labels of the operator's objects. */}}
{{- define "lmetric.labels" -}}
{{- include "lmetric.labelsWith" (dict "root" . "own" (include "lmetric.selectorLabels" . | fromYaml)) }}
{{- end }}

{{/* The same and `extra` ones. */}}
{{- define "lmetric.labelsAnd" -}}
{{- $own := mergeOverwrite (deepCopy .extra) (include "lmetric.selectorLabels" .root | fromYaml) }}
{{- include "lmetric.labelsWith" (dict "root" .root "own" $own) }}
{{- end }}

{{/* Labels of what belongs to another component than the operator. */}}
{{- define "lmetric.componentLabels" -}}
{{- $own := include "lmetric.selectorLabels" .root | fromYaml }}
{{- include "lmetric.labelsWith" (dict "root" .root "own" (mergeOverwrite $own (dict "app.kubernetes.io/component" .component))) }}
{{- end }}

{{- define "lmetric.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "lmetric.operator" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* REPOSITORY:TAG or REPOSITORY@DIGEST of a map with these keys; `default` is the tag when there is none. */}}
{{- define "lmetric.reference" -}}
{{- if .image.digest }}
{{- printf "%s@%s" .image.repository .image.digest }}
{{- else }}
{{- printf "%s:%s" .image.repository (.image.tag | default .default) }}
{{- end }}
{{- end }}

{{- define "lmetric.image" -}}
{{- include "lmetric.reference" (dict "image" .Values.image "default" .Chart.AppVersion) }}
{{- end }}

{{/* Binds the operator's account to the role of the same `name`: of `namespace`, or of the cluster where it is empty. */}}
{{- define "lmetric.binding" -}}
{{- $scope := ternary "" "Cluster" (ne .namespace "") -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $scope }}RoleBinding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "lmetric.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $scope }}Role
  name: {{ .name }}
subjects:
- kind: ServiceAccount
  name: {{ include "lmetric.serviceAccount" .root }}
  namespace: {{ .root.Release.Namespace }}
{{- end }}
