#compdef tersor
# zsh completion for tersor: put it into a directory of $fpath as _tersor
_tersor()
{
	local -a commands
	commands=(
{{}}	)
	if ((CURRENT == 2)); then
		_describe command commands
		return
	fi
	local cmd=$words[2]
	shift words
	((CURRENT--))
	case $cmd in
{{}}	help) _describe command commands ;;
	esac
}
_tersor "$@"
