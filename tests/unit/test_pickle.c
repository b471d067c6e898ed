/* SPDX-License-Identifier: Apache-2.0 */
/* Reading pickles: what each opcode means, and what is refused. */
#include "pickles.h"

/* --- What pickles mean ---------------------------------------------------------------------- */

static const struct {
	struct pickle pickle;
	const char *shown;
} meanings[] = {
	/* torch.save */
	{ BYTES(TORCH_PICKLE),
	  "{'w': torch._utils._rebuild_tensor_v2(persistent ('storage', torch.FloatStorage, '0', "
	  "'cpu', 128), 0, (16, 8), (8, 1), False, collections.OrderedDict())}" },
	{ BYTES(TORCH_PICKLE_4),
	  "{'w': torch._utils._rebuild_tensor_v2(persistent ('storage', torch.FloatStorage, '0', "
	  "'cpu', 128), 0, (16, 8), (8, 1), False, collections.OrderedDict())}" },
	/* pickle.dumps(['a', 'b', ['a']], 2) */
	{ BYTES("\200\002]q\000(X\001\000\000\000aq\001X\001\000\000\000bq\002]q\003h\001ae."),
	  "['a', 'b', ['a']]" },
	/* pickle.dumps((1, (2, 3), (4, 5, 6), (7, 8, 9, 10), ()), 2) */
	{ BYTES("\200\002(K\001K\002K\003\206q\000K\004K\005K\006\207q\001(K\007K\010K\011K\012tq"
		"\002)tq\003."),
	  "(1, (2, 3), (4, 5, 6), (7, 8, 9, 10), ())" },
	/* pickle.dumps({'k': [1, None], 2: {}, (3,): False}, 2) */
	{ BYTES("\200\002}q\000(X\001\000\000\000kq\001]q\002(K\001NeK\002}q\003K\003\205q\004\211"
		"u."),
	  "{'k': [1, None], 2: {}, (3,): False}" },
	/* pickle.dumps(b'\x00a\xff', 2), (b'', 2), (b'\x00a\xff', 4) */
	{ BYTES("\200\002c_codecs\012encode\012q\000X\004\000\000\000\000a\303\277q\001X\006\000"
		"\000\000latin1q\002\206q\003Rq\004."),
	  "b'\\x00a\\xff'" },
	{ BYTES("\200\002c__builtin__\012bytes\012q\000)Rq\001."), "b''" },
	{ BYTES("\200\004\225\007\000\000\000\000\000\000\000C\003\000a\377\224."),
	  "b'\\x00a\\xff'" },
	{ BYTES("\200\003B\001\000\000\000\200."), "b'\\x80'" },
	{ BYTES("\200\004\216\001\000\000\000\000\000\000\000\200."), "b'\\x80'" },
	/* pickle.dumps({1, 2}, 2), (frozenset([3]), 2), both at 4, (set(), 2) */
	{ BYTES("\200\002c__builtin__\012set\012q\000]q\001(K\001K\002e\205q\002Rq\003."),
	  "set[1, 2]" },
	{ BYTES("\200\002c__builtin__\012frozenset\012q\000]q\001K\003a\205q\002Rq\003."),
	  "frozenset[3]" },
	{ BYTES("\200\004\225\011\000\000\000\000\000\000\000\217\224(K\001K\002\220."),
	  "set[1, 2]" },
	{ BYTES("\200\004\225\006\000\000\000\000\000\000\000(K\003\221\224."), "frozenset[3]" },
	{ BYTES("\200\002c__builtin__\012set\012q\000]q\001\205q\002Rq\003."), "set[]" },
	{ BYTES("\200\002cbuiltins\nset\n)R."), "set[]" },
	/* What is added to the list later is not in the set. */
	{ BYTES("\200\002(c__builtin__\nset\n]q\000K\001a\205Rh\000K\002at."), "(set[1], [1, 2])" },
	/* pickle.dumps('\u20ac\ud800', 4); the same at protocol 2; BINUNICODE8 */
	{ BYTES("\200\004\225\012\000\000\000\000\000\000\000\214\006\342\202\254\355\240\200\224"
		"."),
	  "'\\xe2\\x82\\xac\\xed\\xa0\\x80'" },
	{ BYTES("\200\002X\006\000\000\000\342\202\254\355\240\200q\000."),
	  "'\\xe2\\x82\\xac\\xed\\xa0\\x80'" },
	{ BYTES("\200\004\215\003\000\000\000\000\000\000\000a\000b."), "'a\\x00b'" },
	/* A str of Python 2: text if it can be. */
	{ BYTES("\200\002U\003\303\251a."), "'\\xc3\\xa9a'" },
	{ BYTES("\200\002U\002\303a."), "b'\\xc3a'" },
	{ BYTES("\200\002T\002\000\000\000ab."), "'ab'" },
	/* pickle.dumps(collections.OrderedDict([('a', 1)]), 2), (..., 4) */
	{ BYTES("\200\002ccollections\012OrderedDict\012q\000)"
		"Rq\001X\001\000\000\000aq\002K\001s."),
	  "collections.OrderedDict() += {'a': 1}" },
	{ BYTES("\200\004\225)"
		"\000\000\000\000\000\000\000\214\013collections\224\214\013OrderedDict"
		"\224\223\224)R\224\214\001a\224K\001s."),
	  "collections.OrderedDict() += {'a': 1}" },
	/* pickle.dumps(collections.defaultdict(list, {'a': [1]}), 2), (Counter('aab'), 2) */
	{ BYTES("\200\002ccollections\012defaultdict\012q\000c__builtin__"
		"\012list\012q\001\205q\002R"
		"q\003X\001\000\000\000aq\004]q\005K\001as."),
	  "collections.defaultdict(__builtin__.list,) += {'a': [1]}" },
	{ BYTES("\200\002ccollections\012Counter\012q\000}q\001("
		"X\001\000\000\000aq\002K\002X\001\000"
		"\000\000bq\003K\001u\205q\004Rq\005."),
	  "collections.Counter({'a': 2, 'b': 1},)" },
	/* pickle.dumps(bytearray(b'\x80'), 2), (1+2j, 2) */
	{ BYTES("\200\002c__builtin__\012bytearray\012q\000c_codecs\012encode\012q\001X\002\000\000"
		"\000\302\200q\002X\006\000\000\000latin1q\003\206q\004Rq\005\205q\006Rq\007."),
	  "__builtin__.bytearray(b'\\x80',)" },
	{ BYTES("\200\002c__builtin__\012complex\012q\000G\077\360\000\000\000\000\000\000G@"
		"\000\000"
		"\000\000\000\000\000\206q\001Rq\002."),
	  "__builtin__.complex(float 3ff0000000000000, float 4000000000000000)" },
	/* Objects: made by NEWOBJ, filled as a list, given a state; also one that calls a call. */
	{ BYTES("\200\002cm.a\nC\n)\201K\001aK\002a(K\003K\004eNb."),
	  "new m.a.C() += [1, 2, 3, 4] state None" },
	{ BYTES("\200\002cm\nf\n)RK\001\205R."), "m.f()(1,)" },
	{ BYTES("\200\002cm\nf\n)R(u(eNb."), "m.f() state None" },
	/* Dicts keep what Python would merge. */
	{ BYTES("\200\002}(K\001NG\077\360\000\000\000\000\000\000N\210NX\001\000\000\0001NU\0011NC"
		"\0011NK\001\210u."),
	  "{1: None, float 3ff0000000000000: None, True: None, '1': None, '1': None, b'1': None, "
	  "1: True}" },
	{ BYTES("\200\002(t."), "()" },
	{ BYTES("\200\004(\221."), "frozenset[]" },
	/* The stack: POP takes a value or a mark; POP_MARK; DUP. */
	{ BYTES("\200\002K\001K\0020."), "1" },
	{ BYTES("\200\002K\001(0."), "1" },
	{ BYTES("\200\002K\001(K\002(K\003K\00411."), "1" },
	{ BYTES("\200\002K\0012\206."), "(1, 1)" },
	/* The memo from 0 and from 1, in any order; a frame; an int that says nothing new. */
	{ BYTES("\200\002K\007q\001K\010q\002K\011q\0000h\001\207."), "(7, 8, 7)" },
	{ BYTES("\200\002K\007r\000\000\000\000K\010r\001\000\000\000j\000\000\000\000\207."),
	  "(7, 8, 7)" },
	{ BYTES("\200\004\225\000\000\000\000\000\000\000\000N."), "None" },
	{ BYTES("\200\002\212\003\377\377\377."), "-1" },
	{ BYTES("\200\002\212\003\377\000\000."), "255" },
	{ BYTES("\200\002\212\000."), "0" },
	{ BYTES("\200\002\212\002\000\000."), "0" },
	{ BYTES("\200\002\213\002\000\000\000\000\200."), "-32768" },
	{ BYTES("\200\005\210."), "True" },
};

static void test_what_pickles_mean(void **state)
{
	for (size_t i = 0; i < COUNT_OF(meanings); i++) {
		const struct pickle *p = &meanings[i].pickle;

		expect_shown(read_ok(*state, p->bytes, p->nbytes), meanings[i].shown);
	}
}

static void test_ints_of_every_width(void **state)
{
	for (size_t i = 0; i < COUNT_OF(pickled_ints); i++) {
		const struct pickle *p = &pickled_ints[i].pickle;

		expect_shown(read_ok(*state, p->bytes, p->nbytes), pickled_ints[i].shown);
	}
}

static void test_floats_keep_their_bits(void **state)
{
	for (size_t i = 0; i < COUNT_OF(float_bits); i++) {
		char program[] = "\200\002G........."; /* the last is STOP */
		const struct tsr_value *v;

		for (int k = 0; k < 8; k++)
			program[3 + k] = (char)(unsigned char)(float_bits[i] >> (56 - 8 * k));
		v = read_ok(*state, program, sizeof(program) - 1);
		assert_int_equal(v->type, TSR_VALUE_FLOAT);
		assert_true(v->real == float_bits[i]);
	}
}

/* One value that is reached twice stays one; two that are equal stay two. */
static void test_sharing_survives(void **state)
{
	static const char shared[] = "\200\002]q\000(]q\001h\001X\001\000\000\000aq\002h\002e.";
	static const char apart[] = "\200\002](]]X\001\000\000\000aX\001\000\000\000ae.";
	struct tsr_value *const *items;

	items = read_ok(*state, shared, sizeof(shared) - 1)->list.items;
	assert_ptr_equal(items[0], items[1]);
	assert_ptr_equal(items[2], items[3]);
	items = read_ok(*state, apart, sizeof(apart) - 1)->list.items;
	assert_ptr_not_equal(items[0], items[1]);
	assert_ptr_not_equal(items[2], items[3]);
}

/* What is filled after it was put into the memo is filled everywhere. */
static void test_a_shared_value_is_filled_once(void **state)
{
	static const char program[] =
		"\200\002(]q\000h\000K\001ah\000ccollections\nOrderedDict\n)Rq\001"
		"h\001K\002K\003st.";

	expect_shown(read_ok(*state, program, sizeof(program) - 1),
		     "([1], [1], [1], collections.OrderedDict() += {2: 3}, "
		     "collections.OrderedDict() += {2: 3})");
}

/* --- What is refused ------------------------------------------------------------------------ */

static const struct {
	struct pickle pickle;
	enum tsr_status status;
	const char *words;
} refusals[] = {
	{ BYTES(""), TSR_E_FORMAT, "byte 0: found no PROTO" },
	{ BYTES("N."), TSR_E_FORMAT, "byte 0: found no PROTO" },
	{ BYTES("\200"), TSR_E_FORMAT, "byte 0: PROTO: found the end" },
	{ BYTES("\200\001N."), TSR_E_UNSUPPORTED,
	  "PROTO: found pickle protocol 1, expected 2 to 5" },
	{ BYTES("\200\006N."), TSR_E_UNSUPPORTED, "PROTO: found pickle protocol 6" },
	{ BYTES("\200\002N\200\0020."), TSR_E_FORMAT, "byte 3: PROTO: found after the start" },
	/* The end. */
	{ BYTES("\200\002"), TSR_E_FORMAT, "byte 2: found the end of the data, expected STOP" },
	{ BYTES("\200\002N"), TSR_E_FORMAT, "byte 3: found the end of the data, expected STOP" },
	{ BYTES("\200\002."), TSR_E_FORMAT, "STOP: found with 0 values" },
	{ BYTES("\200\002NN."), TSR_E_FORMAT,
	  "STOP: found with 2 values on the stack, expected 1" },
	{ BYTES("\200\002N(."), TSR_E_FORMAT, "STOP: found with 1 marks left over" },
	{ BYTES("\200\002(N."), TSR_E_FORMAT, "STOP: found with 1 marks left over" },
	{ BYTES("\200\002N.N"), TSR_E_FORMAT, "byte 3: STOP: found 1 bytes after it" },
	{ BYTES("\200\002N.."), TSR_E_FORMAT, "STOP: found 1 bytes after it" },
	/* Too little on the stack, or below a mark. */
	{ BYTES("\200\0020N."), TSR_E_FORMAT, "POP: stack underflow: found 0 values, expected 1" },
	{ BYTES("\200\0022."), TSR_E_FORMAT, "DUP: stack underflow" },
	{ BYTES("\200\002q\000."), TSR_E_FORMAT, "BINPUT: stack underflow" },
	{ BYTES("\200\004\224N."), TSR_E_FORMAT, "MEMOIZE: stack underflow" },
	{ BYTES("\200\002\205."), TSR_E_FORMAT, "TUPLE1: stack underflow" },
	{ BYTES("\200\002N\206."), TSR_E_FORMAT, "TUPLE2: stack underflow: found 1 values" },
	{ BYTES("\200\002NN\207."), TSR_E_FORMAT, "TUPLE3: stack underflow: found 2 values" },
	{ BYTES("\200\002Na."), TSR_E_FORMAT, "APPEND: " },
	{ BYTES("\200\002a."), TSR_E_FORMAT, "APPEND: stack underflow" },
	{ BYTES("\200\002}Ns."), TSR_E_FORMAT, "SETITEM: " },
	{ BYTES("\200\002Q."), TSR_E_FORMAT, "BINPERSID: stack underflow" },
	{ BYTES("\200\002)R."), TSR_E_FORMAT, "REDUCE: stack underflow" },
	{ BYTES("\200\002N\201."), TSR_E_FORMAT, "NEWOBJ: stack underflow" },
	{ BYTES("\200\002Nb."), TSR_E_FORMAT, "BUILD: stack underflow" },
	{ BYTES("\200\004\214\001a\223."), TSR_E_FORMAT, "STACK_GLOBAL: stack underflow" },
	{ BYTES("\200\002N(\205."), TSR_E_FORMAT, "TUPLE1: stack underflow: found 0 values above" },
	{ BYTES("\200\002](N(a."), TSR_E_FORMAT, "APPEND: stack underflow" },
	{ BYTES("\200\002N(q\000."), TSR_E_FORMAT, "BINPUT: stack underflow" },

	/* Marks. */
	{ BYTES("\200\0021N."), TSR_E_FORMAT, "POP_MARK: found no mark" },
	{ BYTES("\200\002Nt."), TSR_E_FORMAT, "TUPLE: found no mark" },
	{ BYTES("\200\002]Ne."), TSR_E_FORMAT, "APPENDS: found no mark" },
	{ BYTES("\200\002}NNu."), TSR_E_FORMAT, "SETITEMS: found no mark" },
	{ BYTES("\200\004\217N\220."), TSR_E_FORMAT, "ADDITEMS: found no mark" },
	{ BYTES("\200\004N\221."), TSR_E_FORMAT, "FROZENSET: found no mark" },
	{ BYTES("\200\002}(Nu."), TSR_E_FORMAT, "SETITEMS: found a key without a value" },
	{ BYTES("\200\002(K\001e."), TSR_E_FORMAT, "APPENDS: stack underflow" },
	/* The memo. */
	{ BYTES("\200\002h\000."), TSR_E_FORMAT, "BINGET: found memo id 0, which was not put" },
	{ BYTES("\200\002Nq\000h\001."), TSR_E_FORMAT, "BINGET: found memo id 1, which was not" },
	{ BYTES("\200\002j\377\377\377\377."), TSR_E_FORMAT,
	  "LONG_BINGET: found memo id 4294967295" },
	{ BYTES("\200\002Nr\000\000\000\200."), TSR_E_FORMAT,
	  "LONG_BINPUT: found memo id 2147483648, expected at most 1" },
	{ BYTES("\200\002Nq\002."), TSR_E_FORMAT, "BINPUT: found memo id 2, expected at most 1" },
	{ BYTES("\200\002Nq\000q\000."), TSR_E_FORMAT, "BINPUT: found memo id 0 a second time" },
	{ BYTES("\200\004Nq\001\224."), TSR_E_FORMAT, "MEMOIZE: found memo id 1 a second time" },
	/* Operands. */
	{ BYTES("\200\004\225\002\000\000\000\000\000\000\000N."), TSR_OK, "" },
	{ BYTES("\200\004\225\003\000\000\000\000\000\000\000N."), TSR_E_FORMAT,
	  "FRAME: found a frame of 3 bytes, expected at most the 2" },
	{ BYTES("\200\004\225\377\377\377\377\377\377\377\377N."), TSR_E_FORMAT, "FRAME: " },
	{ BYTES("\200\002X\005\000\000\000abcd"), TSR_E_FORMAT,
	  "byte 2: BINUNICODE: found a length of 5 bytes, expected at most the 4 left" },
	{ BYTES("\200\004\215\377\377\377\377\377\377\377\377."), TSR_E_FORMAT, "BINUNICODE8: " },
	{ BYTES("\200\004\216\377\377\377\377\377\377\377\377."), TSR_E_FORMAT, "BINBYTES8: " },
	{ BYTES("\200\002T\377\377\377\377."), TSR_E_FORMAT, "BINSTRING: " },
	{ BYTES("\200\002\213\377\377\377\377."), TSR_E_FORMAT, "LONG4: " },
	{ BYTES("\200\002\212\003\000."), TSR_E_FORMAT, "LONG1: " },
	{ BYTES("\200\002X\002\000\000\000\303."), TSR_E_FORMAT,
	  "BINUNICODE: found bytes that are" },
	{ BYTES("\200\004\214\001\377."), TSR_E_FORMAT, "SHORT_BINUNICODE: found bytes that are" },
	/* Globals. */
	{ BYTES("\200\002cos\nsystem"), TSR_E_FORMAT, "GLOBAL: found a name without end" },
	{ BYTES("\200\002c"), TSR_E_FORMAT, "GLOBAL: found a name without end" },
	{ BYTES("\200\002c\nf\n."), TSR_E_FORMAT, "GLOBAL: found name \"\"" },
	{ BYTES("\200\002ca b\nf\n."), TSR_E_FORMAT, "GLOBAL: found name \"a b\"" },
	{ BYTES("\200\002cm\n\303\251\n."), TSR_E_FORMAT, "GLOBAL: found name \"\303\251\"" },
	{ BYTES("\200\002cm\n\033[2J\n."), TSR_E_FORMAT, "GLOBAL: found name \"\\x1b[2J\"" },
	{ BYTES("\200\004\214\001mK\001\223."), TSR_E_FORMAT,
	  "STACK_GLOBAL: found a string and an int, expected two strings" },
	{ BYTES("\200\004\214\001m\214\003a\nb\223."), TSR_E_FORMAT, "STACK_GLOBAL: found name" },
	{ BYTES("\200\004\214\003m\000n\214\001a\223."), TSR_E_FORMAT, "STACK_GLOBAL: found name" },
	/* Calls. */
	{ BYTES("\200\002N)R."), TSR_E_FORMAT, "REDUCE: found None to call, expected a global" },
	{ BYTES("\200\002U\001a)\201."), TSR_E_FORMAT, "NEWOBJ: found a string to call" },
	{ BYTES("\200\002cm\nf\n]R."), TSR_E_FORMAT, "REDUCE: found a list for arguments" },
	{ BYTES("\200\002c_codecs\nencode\nX\002\000\000\000\304\200U\006latin1\206R."),
	  TSR_E_FORMAT, "REDUCE: found characters beyond Latin-1" },
	{ BYTES("\200\002c_codecs\nencode\nX\003\000\000\000\355\240\200U\006latin1\206R."),
	  TSR_E_FORMAT, "REDUCE: found characters beyond Latin-1" },
	{ BYTES("\200\002]Nb."), TSR_E_FORMAT, "BUILD: found a list, expected an object" },
	{ BYTES("\200\002cm\nf\nNb."), TSR_E_FORMAT, "BUILD: found a global, expected an object" },
	{ BYTES("\200\002cm\nf\n)RNbNb."), TSR_E_FORMAT,
	  "BUILD: found an object that has a state" },
	/* Filling what cannot be filled so. */
	{ BYTES("\200\002}Na."), TSR_E_FORMAT, "APPEND: found a dict, expected a list" },
	{ BYTES("\200\002)Na."), TSR_E_FORMAT, "APPEND: found a tuple, expected a list" },
	{ BYTES("\200\002](NNu."), TSR_E_FORMAT, "SETITEMS: found a list, expected a dict" },
	{ BYTES("\200\002]NNs."), TSR_E_FORMAT, "SETITEM: found a list, expected a dict" },
	{ BYTES("\200\004](N\220."), TSR_E_FORMAT, "ADDITEMS: found a list, expected a set" },
	{ BYTES("\200\004(\221(N\220."), TSR_E_FORMAT, "ADDITEMS: found a frozenset" },
	{ BYTES("\200\004cm\nf\n)R(N\220."), TSR_E_FORMAT, "ADDITEMS: found an object" },
	{ BYTES("\200\002cm\nf\n)RNNsNa."), TSR_E_FORMAT,
	  "APPEND: found a dict, expected a list to be filled in an object" },
	{ BYTES("\200\002cm\nf\n)RNaNNs."), TSR_E_FORMAT,
	  "SETITEM: found a list, expected a dict to be filled in an object" },
	/* Cycles: l = []; l.append(l); d = {}; d[1] = (d,); an object's own state. */
	{ BYTES("\200\002]q\000h\000a."), TSR_E_FORMAT, "a value that contains itself" },
	{ BYTES("\200\002}q\000K\001h\000\205q\001s."), TSR_E_FORMAT, "contains itself" },
	{ BYTES("\200\002cm\nC\n)\201q\000h\000b."), TSR_E_FORMAT, "contains itself" },
};

static void test_malformed_pickles_are_refused(void **state)
{
	for (size_t i = 0; i < COUNT_OF(refusals); i++) {
		const struct pickle *p = &refusals[i].pickle;

		if (refusals[i].status == TSR_OK)
			read_ok(*state, p->bytes, p->nbytes);
		else
			expect_refused(*state, p->bytes, p->nbytes, refusals[i].status,
				       refusals[i].words);
	}
}

/* pickletools.opcodes less those that the reader's header names. */
static const struct {
	unsigned char code;
	const char *name;
} unsupported[] = {
	{ 'I', "INT" },	   { 'L', "LONG" },	    { 'F', "FLOAT" },
	{ 'S', "STRING" }, { 'V', "UNICODE" },	    { 'P', "PERSID" },
	{ 'g', "GET" },	   { 'p', "PUT" },	    { 'i', "INST" },
	{ 'o', "OBJ" },	   { 0x82, "EXT1" },	    { 0x83, "EXT2" },
	{ 0x84, "EXT4" },  { 0x97, "NEXT_BUFFER" }, { 0x98, "READONLY_BUFFER" },
};

static void test_other_opcodes_are_refused_by_name(void **state)
{
	for (size_t i = 0; i < COUNT_OF(unsupported); i++) {
		char program[] = "\200\004N?0\n0\n.", words[64];

		program[3] = (char)unsupported[i].code;
		snprintf(words, sizeof(words), "byte 3: %s: an opcode that", unsupported[i].name);
		expect_refused(*state, program, sizeof(program) - 1, TSR_E_UNSUPPORTED, words);
	}
}

/* Neither known nor refused by name: not an opcode at all. */
static void test_other_bytes_are_no_opcodes(void **state)
{
	static const char known[] = "\200\225.(012qr\224hjN\210\211JKM\212\213G\214X\215UTCB\216)t"
				    "\205\206\207]lae}dsu\217\220\221c\223R\201bQ\222\226";
	unsigned nknown = 0;

	for (unsigned code = 0; code < 256; code++) {
		char program[] = "\200\004N?...........", words[64];
		bool named = memchr(known, (int)code, sizeof(known) - 1) != NULL;

		for (size_t i = 0; i < COUNT_OF(unsupported); i++)
			named = named || unsupported[i].code == code;
		nknown += named;
		program[3] = (char)(unsigned char)code;
		snprintf(words, sizeof(words), "byte 3: found 0x%02x, which is not an opcode",
			 code);
		if (!named)
			expect_refused(*state, program, sizeof(program) - 1, TSR_E_FORMAT, words);
	}
	assert_int_equal(nknown, 68); /* len(pickletools.opcodes) */
}

static void test_every_truncation_is_refused(void **state)
{
	static const struct pickle whole[] = { BYTES(TORCH_PICKLE), BYTES(TORCH_PICKLE_4) };

	for (size_t i = 0; i < COUNT_OF(whole); i++) {
		for (size_t n = 0; n < whole[i].nbytes; n++)
			expect_refused(*state, whole[i].bytes, n, TSR_E_FORMAT, "");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		arena_test(test_what_pickles_mean),
		arena_test(test_ints_of_every_width),
		arena_test(test_floats_keep_their_bits),
		arena_test(test_sharing_survives),
		arena_test(test_a_shared_value_is_filled_once),
		arena_test(test_malformed_pickles_are_refused),
		arena_test(test_other_opcodes_are_refused_by_name),
		arena_test(test_other_bytes_are_no_opcodes),
		arena_test(test_every_truncation_is_refused),
	};

	return cmocka_run_group_tests_name("pickle", tests, NULL, NULL);
}
