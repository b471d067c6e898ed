# bash completion for tersor: source it, or put it into
# /usr/share/bash-completion/completions/tersor
_tersor()
{
	local cur="${COMP_WORDS[COMP_CWORD]}" prev="" cmd="${COMP_WORDS[1]}" words="" list="" lead="" options="" operands=""
	local commands="{{}}help"
	COMPREPLY=()
	((COMP_CWORD > 0)) && prev="${COMP_WORDS[COMP_CWORD-1]}"
	# --option=value is three words, or one where COMP_WORDBREAKS lacks the =
	if [[ $cur == --*=* ]]; then
		prev="${cur%%=*}" lead="${cur%%=*}=" cur="${cur#*=}"
	elif [[ $cur == = ]]; then
		cur=""
	elif [[ $prev == = ]]; then
		prev="${COMP_WORDS[COMP_CWORD-2]}"
	fi
	case "$cmd:$prev" in
{{}}	esac
	case "$cmd" in
{{}}	help) operands=$commands ;;
	esac
	# of a list, the word behind the last comma
	if [[ -n $list && $cur == *,* ]]; then
		lead+="${cur%,*}," cur="${cur##*,}"
	fi
	if ((COMP_CWORD == 1)); then
		words=$commands
	elif [[ -z $words && $cur == -* ]]; then
		words=$options
	elif [[ -z $words ]]; then
		words=$operands
	fi
	if [[ -n $words ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
	else
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
	fi
	COMPREPLY=("${COMPREPLY[@]/#/$lead}")
}
complete -o filenames -F _tersor tersor
