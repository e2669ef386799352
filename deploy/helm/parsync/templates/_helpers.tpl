{{/* Labels of an object: (list ROOT ROLE). */}}
{{- define "parsync.labels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: parsync
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* The parts of a pod that all have: (list ROOT ROLE). */}}
{{- define "parsync.pod" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
automountServiceAccountToken: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  seccompProfile: {type: RuntimeDefault}
volumes:
  - name: tmp
    emptyDir: {}
  {{- if $root.Values.secret }}
  - name: password
    secret:
      secretName: {{ $root.Values.secret }}
      items: [{key: {{ $role }}, path: {{ $role }}}]
  {{- end }}
{{- end }}

{{/* The parts of a container that all have: (list ROOT ROLE). */}}
{{- define "parsync.container" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
{{- $values := $root.Values -}}
image: {{ printf "%s:%s" $values.image.repository $values.image.tag | quote }}
imagePullPolicy: {{ $values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
env:
  - {name: PARSYNC_CLUSTER, value: {{ quote $values.cluster }}}
  {{- if $values.secret }}
  - {name: PARSYNC_URL, value: {{ printf "%s://%s-%s@%s" $values.redis.scheme $values.cluster $role $values.redis.address | quote }}}
  - {name: PARSYNC_PASSWORD_FILE, value: /run/secrets/parsync/{{ $role }}}
  {{- else }}
  - {name: PARSYNC_URL, value: {{ printf "%s://%s" $values.redis.scheme $values.redis.address | quote }}}
  {{- end }}
  - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  {{- with $values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
volumeMounts:
  - {name: tmp, mountPath: /tmp}
  {{- if $values.secret }}
  - {name: password, mountPath: /run/secrets/parsync, readOnly: true}
  {{- end }}
{{- end }}
